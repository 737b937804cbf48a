"""v1 sessions among other things that a program does. Usage: sessions.py SCENARIO; prints JSON."""

import json
import sys

import tensorflow as tf
from common import two_devices

from tfplace.capture import hook, slot

scenario = sys.argv[1]
device = two_devices()
tf1 = tf.compat.v1
tf1.disable_eager_execution()
with tf1.device("/CPU:0"):
    weight = tf1.get_variable("weight", [], initializer=tf1.ones_initializer(), use_resource=True)
x = tf1.placeholder(tf.float32, [], name="x")
with tf1.device(device):
    train = tf1.assign_add(weight, x * 0.5)
    checked = tf1.debugging.check_numerics(tf1.math.log(x), "x is not positive")
init = tf1.global_variables_initializer()
said = {}


def values_of(session, count=8, **options):
    return [float(session.run(train, {x: float(number)}, **options)) for number in range(count)]


if scenario == "own-options":  # runs that the user traces are left alone, and not counted
    session = hook.trace_session(tf1.Session(), "trace.pb", skip=1, steps=2)
    session.run(init)
    theirs = tf1.RunMetadata()
    full = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    said["results"] = values_of(session, 3, options=full, run_metadata=theirs)
    said["theirs"] = len(theirs.step_stats.dev_stats) > 0
    said["live_before"] = slot.live() is not None
    values_of(session, 3)
elif scenario == "own-metadata":  # theirs gets what it would have got without a trace
    session = hook.trace_session(tf1.Session(), "trace.pb", skip=1, steps=3)
    session.run(init)
    theirs = tf1.RunMetadata()
    said["results"] = values_of(session, run_metadata=theirs)
    said["theirs"] = theirs.ByteSize()
elif scenario == "profiler-on":
    session = tf1.Session()
    session.run(init)
    tf.profiler.experimental.start("theirs")
    hook.trace_session(session, "trace.pb", skip=0, steps=3)
    said["results"] = values_of(session)
    tf.profiler.experimental.stop()
elif scenario == "run-raises":
    session = hook.trace_session(tf1.Session(), "trace.pb", skip=1, steps=5)
    session.run(init)
    values_of(session, 3)
    try:
        session.run(checked, {x: 0.0})
    except tf.errors.InvalidArgumentError as error:
        said["error"] = type(error).__name__
elif scenario == "hook-raises":
    try:
        with tf1.train.MonitoredSession(hooks=[hook.SessionHook("trace.pb", skip=1, steps=5)]) as session:
            values_of(session, 3)
            session.run(checked, {x: 0.0})
    except tf.errors.InvalidArgumentError as error:
        said["error"] = type(error).__name__
elif scenario == "hook-and-theirs":

    class Theirs(tf1.train.SessionRunHook):
        def before_run(self, run_context):
            return tf1.train.SessionRunArgs(None, options=tf1.RunOptions(timeout_in_ms=60_000))

        def after_run(self, run_context, run_values):
            said.setdefault("timeouts", []).append(run_values.options.timeout_in_ms)

    with tf1.train.MonitoredSession(hooks=[Theirs(), hook.SessionHook("trace.pb")]) as session:
        said["results"] = values_of(session)
    said["nodes"] = [op.name for op in tf1.get_default_graph().get_operations() if "tfplace" in op.name]
elif scenario == "closed-early":
    with hook.trace_session(tf1.Session(), "trace.pb", skip=1, steps=50) as session:
        session.run(init)
        values_of(session, 3)
    session.close()
elif scenario == "misuse":
    from tfplace.errors import UsageError

    try:
        hook.trace_session("a session", "trace.pb")
    except UsageError as error:
        said["error"] = str(error)
said["live"] = slot.live() is not None
print(json.dumps(said))
