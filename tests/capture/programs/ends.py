"""What becomes of a capture when the program's own loop fails. Usage: ends.py SCENARIO; prints JSON."""

import json
import os
import sys
import traceback
import warnings

import numpy as np
import tensorflow as tf
from common import two_devices
from leftovers import left_behind

two_devices()
from tfplace.capture import decorator, hook, slot  # noqa: E402
from tfplace.capture.keras import KerasCallback  # noqa: E402

scenario = sys.argv[1]
said = {"warnings": []}
tf1 = tf.compat.v1
X, Y = np.ones((48, 4), "f4"), np.ones((48, 2), "f4")


def error():
    return KeyboardInterrupt("of the program") if scenario.endswith("ctrl-c") else ValueError("of the program")


class Fail(tf.keras.callbacks.Callback):
    """Fails after the fourth batch, between two steps."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 3:
            raise error()

    on_test_batch_end = on_predict_batch_end = on_train_batch_end


class FailInStep(tf.keras.callbacks.Callback):
    """Fails when the fourth batch has begun and before its step runs."""

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 3:
            raise error()


class CaptureMore(tf.keras.callbacks.Callback):
    """Asks for another capture while the fit goes on."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            next_capture("second.pb")


def make_model():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])
    model.compile("sgd", "mse", jit_compile=False)
    return model


def next_capture(path="next.pb"):
    weight = tf.Variable(1.0)

    @decorator.trace(path, skip=1, steps=1)
    @tf.function
    def step(x):
        return weight.assign_add(x)

    for _ in range(3):
        step(1.0)


def fails(action):
    """Do what fails; say whether the error came out as it was."""
    try:
        action()
    except BaseException as raised:
        said["same"] = repr(raised) == repr(error()) and raised.__cause__ is None and raised.__context__ is None
        said["ours"] = [line for line in traceback.format_exc().splitlines() if "/tfplace/capture/" in line]
        return raised
    return None


def keras(what, other):
    callbacks = [KerasCallback("trace.pb", batch=1, steps=50), other]
    arguments = {"batch_size": 8, "verbose": 0, "callbacks": callbacks}
    if what == "predict":
        make_model().predict(X, **arguments)
    else:
        getattr(make_model(), what)(X, Y, **arguments)


def in_a_session(make):
    with tf.Graph().as_default():
        weight = tf1.get_variable("weight", [], initializer=tf1.ones_initializer(), use_resource=True)
        train, init = tf1.assign_add(weight, 1.0), tf1.global_variables_initializer()
        make(train, init)


def monitored(train, init):
    with tf1.train.MonitoredSession(hooks=[hook.SessionHook("trace.pb", skip=1, steps=50)]) as session:
        for number in range(6):
            session.run(train)
            if number == 4:
                raise error()


def plain(train, init):
    with hook.trace_session(tf1.Session(), "trace.pb", skip=1, steps=50) as session:
        session.run(init)
        for number in range(6):
            session.run(train)
            if number == 4:
                raise error()


def left_open(train, init):
    session = tf1.train.MonitoredSession(hooks=[hook.SessionHook("trace.pb", skip=1, steps=50)])
    for _ in range(5):
        session.run(train)
    if scenario == "hook-open":
        keep.append(session)


keep = []


def own_loop():
    """A loop that drives Keras' callbacks itself and keeps them elsewhere than in a variable."""
    model = make_model()
    keep.append(tf.keras.callbacks.CallbackList([KerasCallback("trace.pb", batch=1, steps=3)], model=model))
    keep[0].on_train_begin()
    next_capture()
    model.make_train_function()
    step = model.train_function
    for number in range(6):
        keep[0].on_train_batch_begin(number)
        step(iter(tf.data.Dataset.from_tensors((X, Y))))
        keep[0].on_train_batch_end(number)
    keep[0].on_train_end()


def same_callback_again():
    callback, model = KerasCallback("trace.pb", batch=1, steps=50), make_model()
    keep.append(fails(lambda: model.fit(X, Y, batch_size=8, verbose=0, callbacks=[callback, Fail()])))
    said["live"] = slot.live() is not None
    model.fit(X, Y, batch_size=8, verbose=0, callbacks=[callback])


SCENARIOS = {
    "fit": lambda: fails(lambda: keras("fit", Fail())),
    "fit-ctrl-c": lambda: fails(lambda: keras("fit", Fail())),
    "fit-in-step": lambda: fails(lambda: keras("fit", FailInStep())),
    "evaluate": lambda: fails(lambda: keras("evaluate", Fail())),
    "predict": lambda: fails(lambda: keras("predict", Fail())),
    "fit-held": lambda: keep.append(fails(lambda: keras("fit", Fail()))),
    "fit-goes-on": lambda: keras("fit", CaptureMore()),
    "same-callback-again": same_callback_again,
    "own-loop": own_loop,
    "hook": lambda: fails(lambda: in_a_session(monitored)),
    "hook-ctrl-c": lambda: fails(lambda: in_a_session(monitored)),
    "hook-dropped": lambda: in_a_session(left_open),
    "hook-open": lambda: in_a_session(left_open),
    "session": lambda: fails(lambda: in_a_session(plain)),
}
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    SCENARIOS[scenario]()
    said.setdefault("live", slot.live() is not None)
    said["file"] = os.path.exists("trace.pb")
    if scenario not in ("own-loop", "same-callback-again"):
        next_capture()
    said["files"] = sorted(name for name in os.listdir(".") if name.endswith(".pb"))
    said["left"] = left_behind()
said["warnings"] = [str(one.message) for one in seen if "tfplace" in str(one.message)]
print(json.dumps(said))
