"""Injects a fault at every site of capture, one after another, and says what the training saw. Prints JSON."""

import json
import os
import sys
import warnings

import tensorflow as tf
from common import DEVICE, two_devices
from leftovers import left_behind

two_devices()
from tfplace.capture import assemble, decorator, graphs, guard, profiler, recording  # noqa: E402
from tfplace.capture import context as contexts  # noqa: E402

SITES = {
    "before": (recording.Recording, "_enter"),
    "after": (recording.Recording, "_leave"),
    "graph collection": (graphs.GraphStore, "open"),
    "before a run": (graphs.GraphStore, "before_run"),
    "graph export": (graphs.GraphStore, "after_run"),
    "profiler start": (profiler.ProfilerLease, "start"),
    "profiler stop": (profiler.ProfilerLease, "_collect"),
    "convert": (assemble, "step_stats_from_xspace"),
    "names": (contexts, "describe_functions"),
    "lines": (assemble, "node_lines"),
    "shapes": (assemble, "add_output_shapes"),
    "kernels": (assemble, "gpu_kernels"),
    "devices": (contexts, "describe_devices"),
    "write": (assemble, "write_trace"),
}
ERRORS = {
    "OSError": OSError(28, "No space left on device"),
    "RuntimeError": RuntimeError("injected"),
    "InternalError": tf.errors.InternalError(None, None, "injected"),
    "KeyboardInterrupt": KeyboardInterrupt(),
}


def make_step():
    with tf.device("/CPU:0"):
        weight = tf.Variable(1.0)

    @tf.function
    def step(x):
        with tf.device(DEVICE):
            weight.assign_add(x * 0.5)
            return weight + tf.reduce_sum(tf.random.stateless_uniform([3], [1, 2]))

    return step


def losses_of(step):
    return [float(step(tf.constant(float(number)))) for number in range(8)]


def one(site, error):
    owner, name = SITES[site]
    original = getattr(owner, name)

    def broken(*args, **kwargs):
        raise error

    path = f"{site.replace(' ', '_')}_{type(error).__name__}.pb"
    step = decorator.trace(path)(make_step())
    setattr(owner, name, broken)
    stopped, result = None, None
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            result = losses_of(step)
    except BaseException as raised:
        stopped = type(raised).__name__
    finally:
        setattr(owner, name, original)
    texts = [str(one.message) for one in seen if issubclass(one.category, guard.CaptureWarning)]
    return {
        "site": site,
        "error": type(error).__name__,
        "stopped": stopped,
        "equal": result == expected,
        "warnings": texts,
        "left": left_behind(),
        "file": os.path.exists(path),
    }


expected = losses_of(make_step())
chosen = sys.argv[1:] or list(SITES)
print(json.dumps([one(site, error) for site in chosen for error in ERRORS.values()]))
