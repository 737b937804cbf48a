"""`Model.fit` on a small dense net, the batches from tf.data, with and without `prefetch_to_device`."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

BATCH, FEATURES, STEPS = 64, 784, 6


class Pause(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Waits around each batch until what is prefetched has come, so that every step shows its own batch's copies."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        time.sleep(0.2)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(0.2)


def fit(accelerator: str, callback: Any, prefetch: str) -> None:
    """Train for one epoch; `prefetch` is 'to_device' or 'no'."""
    tf.keras.utils.set_random_seed(1)
    features = tf.random.uniform([BATCH * STEPS, FEATURES])
    labels = tf.random.uniform([BATCH * STEPS], 0, 10, tf.int64)
    with tf.device("/cpu:0"):
        dataset = tf.data.Dataset.from_tensor_slices((features, labels)).batch(BATCH, drop_remainder=True).repeat()
    if prefetch == "to_device":
        dataset = dataset.apply(tf.data.experimental.prefetch_to_device(accelerator))
    model = tf.keras.Sequential(
        [
            tf.keras.Input([FEATURES]),
            tf.keras.layers.Dense(256, activation="relu", name="hidden"),
            tf.keras.layers.Dense(10, name="logits"),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # With a GPU there Keras would compile the step by XLA, which hides all placement.
    model.compile(tf.keras.optimizers.SGD(0.1), loss, jit_compile=False)
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0, shuffle=False, callbacks=[Pause(), callback])
