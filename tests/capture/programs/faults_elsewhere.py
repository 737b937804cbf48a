"""Faults injected into the capture of v1 sessions and into the step finder. Usage: faults_elsewhere.py; prints JSON."""

import json
import os
import warnings

import tensorflow as tf
from common import two_devices

device = two_devices()
from tfplace.capture import assemble, finder, funnel, graphs, guard, hook, profiler, recording, v1  # noqa: E402
from tfplace.capture.schedule import Options  # noqa: E402

tf1 = tf.compat.v1
SITES = {
    "session before": (v1.SessionRecording, "_enter"),
    "session after": (v1.SessionRecording, "_leave"),
    "session convert": (v1, "join_runs"),
    "session lines": (v1, "_lines"),
    "session shapes": (v1, "_add_shapes"),
    "session write": (v1, "write_trace"),
    "finder before": (finder.StepFinder, "_before_top"),
    "finder after": (finder.StepFinder, "_after_top"),
    "finder begin": (finder.StepFinder, "_begin"),
    "finder graphs": (graphs.GraphStore, "before_run"),
    "finder profiler stop": (profiler.ProfilerLease, "_collect"),
    "finder convert": (assemble, "step_stats_from_xspace"),
    "finder write": (assemble, "write_trace"),
}
ERRORS = {
    "OSError": OSError(28, "No space left on device"),
    "RuntimeError": RuntimeError("injected"),
    "InternalError": tf.errors.InternalError(None, None, "injected"),
    "KeyboardInterrupt": KeyboardInterrupt(),
}
EXPECTED = [1.0, 1.5, 2.5, 4.0, 6.0, 8.5, 11.5, 15.0]


def run_session(path):
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [])
        weight = tf1.get_variable("weight", [], initializer=tf1.ones_initializer(), use_resource=True)
        with tf1.device(device):
            train = tf1.assign_add(weight, x * 0.5)
        with hook.trace_session(tf1.Session(), path, skip=1, steps=3) as session:
            session.run(tf1.global_variables_initializer())
            return [float(session.run(train, {x: float(number)})) for number in range(8)]


def run_found(path):
    found = finder.StepFinder(Options(path, made_by="record"))
    weight = tf.Variable(1.0)

    @tf.function
    def step(x):
        with tf.device(device):
            return weight.assign_add(x * 0.5)

    found.start()
    try:
        return [float(step(tf.constant(float(number)))) for number in range(8)]
    finally:
        found.finish()


def clean():
    left = []
    if recording.live() is not None:
        left.append("slot")
    if funnel._state.listener is not None or funnel._state.originals is not None:
        left.append("funnel")
    if not profiler.probe():
        left.append("profiler")
    tensorflow = profiler.tensorflow()
    for name in ("ensure_initialized", "export_run_metadata", "call_function"):
        if getattr(tensorflow.context.Context, name).__name__ != name:
            left.append(name)
    return left + [name for name in os.listdir(".") if name.endswith(".tmp")]


def one(site, error):
    owner, name = SITES[site]
    original = getattr(owner, name)

    def broken(*args, **kwargs):
        raise error

    path = f"{site.replace(' ', '_')}_{type(error).__name__}.pb"
    setattr(owner, name, broken)
    stopped, result = None, None
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            result = run_session(path) if site.startswith("session") else run_found(path)
    except BaseException as raised:
        stopped = type(raised).__name__
    finally:
        setattr(owner, name, original)
    texts = [str(one.message) for one in seen if issubclass(one.category, guard.CaptureWarning)]
    if recording.live() is not None:
        recording.live().finish()
    return {
        "site": site,
        "error": type(error).__name__,
        "stopped": stopped,
        "equal": result == EXPECTED,
        "warnings": texts,
        "left": clean(),
    }


print(json.dumps([one(site, error) for site in SITES for error in ERRORS.values()]))
