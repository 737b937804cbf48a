"""Keras. Usage: keras_fit.py none|callback|capture|late|short fit|batches|evaluate|predict [fixed] [jit].

SPE = steps_per_execution.
"""

import os
import sys
from contextlib import nullcontext

import numpy as np
import tensorflow as tf
from common import HOST, say, two_devices

how, what = sys.argv[1], sys.argv[2]
device = two_devices()
device = HOST if "jit" in sys.argv else device  # XLA takes no variable of another device
home = device if "fixed" in sys.argv else HOST
tf.keras.utils.set_random_seed(3)
callbacks = []
if how == "capture":
    import tfplace  # noqa: F401
if how in ("callback", "late"):
    from tfplace.capture.keras import KerasCallback

    callbacks = [KerasCallback("trace.pb", batch=4)]


class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        with tf.device(home):
            self.first = tf.keras.layers.Dense(32, activation="relu", name="first")
            self.first.build((None, 16))
        self.dropout = tf.keras.layers.Dropout(0.5)
        self.last = tf.keras.layers.Dense(4, name="last")

    def call(self, inputs, training=False):
        with tf.device(device):
            hidden = self.dropout(self.first(inputs), training=training)
            if "jit" not in sys.argv:  # both kinds of random ops: Keras' own, and TensorFlow's with a state in the op
                hidden = tf.nn.dropout(hidden, 0.2) + 0.1 * tf.random.normal([32])
            return self.last(hidden)


model = Net()
model.compile(  # short: a fit too short for its callback, then one with another
    "adam",
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    steps_per_execution=int(os.environ.get("SPE", "1")),
    jit_compile="jit" in sys.argv or "mixed-jit" in sys.argv,
)
random = np.random.RandomState(0)
images, labels = random.rand(400, 16).astype("f4"), random.randint(0, 4, 400)
if how == "late":
    model.fit(images, labels, batch_size=8, epochs=1, verbose=0)
if how == "short":
    from tfplace.capture.keras import KerasCallback

    model.fit(images, labels, batch_size=40, epochs=1, verbose=0, callbacks=[KerasCallback("first.pb", batch=100)])
    callbacks = [KerasCallback("trace.pb", batch=4)]
if what == "fit":
    history = model.fit(images, labels, batch_size=8, epochs=1, verbose=0, callbacks=callbacks, validation_split=0.1)
    say([history.history["loss"][0], history.history["val_loss"][0]], model.get_weights())
elif what == "batches":  # 50 steps, the first of which `capture` is around
    losses = []
    for start in range(0, 400, 8):
        around = sys.modules["tfplace"].capture("trace.pb") if how == "capture" and not start else nullcontext()
        with around:
            losses.append(model.train_on_batch(images[start : start + 8], labels[start : start + 8]))
    say(losses, model.get_weights())
elif what == "evaluate":
    say([model.evaluate(images, labels, batch_size=8, verbose=0, callbacks=callbacks)], model.get_weights())
else:
    say([model.predict(images, batch_size=8, verbose=0, callbacks=callbacks).sum()], model.get_weights())
