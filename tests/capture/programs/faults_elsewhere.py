"""Faults injected into every other way of capturing than the decorator. Usage: faults_elsewhere.py; prints JSON."""

import json
import warnings

import numpy as np
import tensorflow as tf
from common import two_devices
from leftovers import left_behind

device = two_devices()
from tfplace.capture import assemble, decorator, finder, funnel, graphs, guard, hook, profiler, recording, v1  # noqa: E402  # noqa: E402
from tfplace.capture import context as contexts  # noqa: E402
from tfplace.capture import keras as keras_way  # noqa: E402
from tfplace.capture.schedule import Options  # noqa: E402

tf1 = tf.compat.v1
RECORDING = {
    "claim": (recording, "claim"),
    "go live": (recording.Recording, "go_live"),
    "before": (recording.Recording, "_enter"),
    "after": (recording.Recording, "_leave"),
    "graph collection": (graphs.GraphStore, "open"),
    "install": (funnel, "install"),
    "before a run": (graphs.GraphStore, "before_run"),
    "graph export": (graphs.GraphStore, "after_run"),
    "profiler start": (profiler.ProfilerLease, "start"),
    "step begin": (recording.Step, "begin"),
    "profiler stop": (profiler.ProfilerLease, "_collect"),
    "convert": (assemble, "step_stats_from_xspace"),
    "names": (contexts, "describe_functions"),
    "devices": (contexts, "describe_devices"),
    "finish": (recording.Recording, "_finish"),
    "write": (assemble, "write_trace"),
}
SESSION = {
    "before": (v1.SessionRecording, "_enter"),
    "claim": (v1, "claim"),
    "after": (v1.SessionRecording, "_leave"),
    "convert": (v1, "join_runs"),
    "lines": (v1, "_lines"),
    "shapes": (v1, "_add_shapes"),
    "write": (v1, "write_trace"),
}
FINDER = {
    "before": (finder.StepFinder, "_before_top"),
    "after": (finder.StepFinder, "_after_top"),
    "begin": (finder.StepFinder, "_begin"),
    "graphs": (graphs.GraphStore, "before_run"),
    "profiler stop": (profiler.ProfilerLease, "_collect"),
    "convert": (assemble, "step_stats_from_xspace"),
    "write": (assemble, "write_trace"),
}
ERRORS = {
    "OSError": OSError(28, "No space left on device"),
    "RuntimeError": RuntimeError("injected"),
    "InternalError": tf.errors.InternalError(None, None, "injected"),
    "KeyboardInterrupt": KeyboardInterrupt(),
}


def run_session(path):
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [])
        weight = tf1.get_variable("weight", [], initializer=tf1.ones_initializer(), use_resource=True)
        with tf1.device(device):
            train = tf1.assign_add(weight, x * 0.5)
        with hook.trace_session(tf1.Session(), path, skip=1, steps=3) as session:
            session.run(tf1.global_variables_initializer())
            return [float(session.run(train, {x: float(number)})) for number in range(8)]


def run_hook(path):
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [])
        weight = tf1.get_variable("weight", [], initializer=tf1.ones_initializer(), use_resource=True)
        with tf1.device(device):
            train = tf1.assign_add(weight, x * 0.5)
        with tf1.train.MonitoredSession(hooks=[hook.SessionHook(path, skip=1, steps=3)]) as session:
            return [float(session.run(train, {x: float(number)})) for number in range(8)]


def make_step():
    weight = tf.Variable(1.0)

    @tf.function
    def step(x):
        with tf.device(device):
            return weight.assign_add(x * 0.5)

    return step


def run_found(path):
    found, step = finder.StepFinder(Options(path, made_by="record")), make_step()
    found.start()
    try:
        return [float(step(tf.constant(float(number)))) for number in range(8)]
    finally:
        found.finish()


def run_capture(path):
    step, results = make_step(), []
    for number in range(8):
        if number == 3:
            with decorator.capture(path):
                results.append(float(step(tf.constant(float(number)))))
        else:
            results.append(float(step(tf.constant(float(number)))))
    return results


def run_keras(path):
    """Eight batches of one example; the weight is 1 and grows by half of each."""
    layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    model = tf.keras.Sequential([tf.keras.Input((1,)), layer])
    model.compile(tf.keras.optimizers.SGD(0.5), lambda wanted, given: -tf.reduce_mean(given), jit_compile=False)
    results = []

    class Keep(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            results.append(float(layer.kernel.numpy()[0, 0]))

    examples = np.arange(8.0, dtype="f4").reshape(8, 1)
    callbacks = [Keep(), keras_way.KerasCallback(path, batch=2, steps=3)]
    model.fit(examples, examples, batch_size=1, shuffle=False, verbose=0, callbacks=callbacks)
    return results


EXPECTED = [1.0, 1.5, 2.5, 4.0, 6.0, 8.5, 11.5, 15.0]
WAYS = {
    "session": (run_session, SESSION),
    "hook": (run_hook, SESSION),
    "finder": (run_found, FINDER),
    "capture": (run_capture, RECORDING),
    "keras": (run_keras, RECORDING),
}


def one(way, site, error):
    run, sites = WAYS[way]
    owner, name = sites[site]
    original = getattr(owner, name)
    reached = False

    def broken(*args, **kwargs):
        nonlocal reached
        reached = True
        raise error

    setattr(owner, name, broken)
    stopped, result = None, None
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            result = run(f"{way}_{site.replace(' ', '_')}_{type(error).__name__}.pb")
    except BaseException as raised:
        stopped = type(raised).__name__
    finally:
        setattr(owner, name, original)
    return {
        "way": way,
        "site": site,
        "error": type(error).__name__,
        "reached": reached,
        "stopped": stopped,
        "equal": result == EXPECTED,
        "warnings": [str(one.message) for one in seen if issubclass(one.category, guard.CaptureWarning)],
        "left": left_behind(),
    }


rows = [one(way, site, error) for way in WAYS for site in WAYS[way][1] for error in ERRORS.values()]
print(json.dumps(rows))
