"""How capture behaves among everything else that a program does. Usage: conduct.py SCENARIO; prints JSON."""

import json
import os
import sys
import threading
import time
import warnings

import tensorflow as tf
from common import DEVICE, two_devices

scenario = sys.argv[1]
said = {}
if scenario != "own-devices":
    two_devices()
if scenario != "import-first":
    from tfplace.capture import decorator, slot


def make_step(name="w", fail_at=None):
    with tf.device("/CPU:0"):
        weight = tf.Variable(1.0, name=name)

    @tf.function
    def step(x):
        with tf.device(DEVICE):
            weight.assign_add(x * 0.5)
            if fail_at is not None:
                tf.debugging.assert_less(x, float(fail_at))
            return weight * 2.0

    return step


def losses_of(step, count=8):
    return [float(step(tf.constant(float(number)))) for number in range(count)]


def quiet(action):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = action()
    said.setdefault("warnings", []).extend(str(one.message) for one in seen if "tfplace" in str(one.message))
    return result


if scenario == "own-devices":  # decorating comes before the program's own device configuration

    @decorator.trace
    @tf.function
    def step(x):
        return x + 1.0

    two_devices()
    said["results"] = losses_of(step)
elif scenario == "step-fails":
    step = decorator.trace(make_step(fail_at=4))
    try:
        losses_of(step)
    except tf.errors.InvalidArgumentError as error:
        said["error"] = type(error).__name__
elif scenario == "first-step-fails":
    step = decorator.trace(make_step(fail_at=0))
    try:
        losses_of(step)
    except tf.errors.InvalidArgumentError as error:
        said["error"] = type(error).__name__
elif scenario == "end-of-data":
    iterator = iter(tf.data.Dataset.range(4).map(lambda i: tf.cast(i, tf.float32)))

    @tf.function
    def epoch_step(iterator):
        return next(iterator) * 2.0

    step = decorator.trace(epoch_step)
    said["results"] = []
    for _ in range(2):
        try:
            while True:
                said["results"].append(float(step(iterator)))
        except tf.errors.OutOfRangeError:
            iterator = iter(tf.data.Dataset.range(4).map(lambda i: tf.cast(i, tf.float32)))
elif scenario == "exits-early":
    step = decorator.trace(make_step())
    losses_of(step, 4)
    print(json.dumps(said))
    sys.exit(3)
elif scenario == "two-captures":
    first, second = decorator.trace("first.pb")(make_step("a")), decorator.trace("second.pb")(make_step("b"))

    def both():
        for number in range(8):
            first(tf.constant(float(number)))
            second(tf.constant(float(number)))

    quiet(both)
    said["files"] = sorted(name for name in os.listdir(".") if name.endswith(".pb"))
elif scenario == "one-after-the-other":
    losses_of(decorator.trace("first.pb")(make_step("a")))
    losses_of(decorator.trace("second.pb")(make_step("b")))
    said["files"] = sorted(name for name in os.listdir(".") if name.endswith(".pb"))
elif scenario == "threads":
    step = decorator.trace(make_step())
    results = []

    def work():
        for _ in range(20):
            results.append(float(step(tf.constant(1.0))))

    threads = [threading.Thread(target=work, name=f"trainer-{number}") for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    said["count"], said["last"] = len(results), max(results)
elif scenario == "reentrant":
    inner = make_step()
    depth = []

    @decorator.trace
    def step(x):
        depth.append(1)
        return inner(x) if len(depth) % 2 == 0 else step(x)

    said["results"] = losses_of(step)
elif scenario == "fork":
    step = decorator.trace(make_step())
    losses_of(step, 3)
    child = os.fork()
    if child == 0:
        os._exit(0 if slot.live() is None else 1)
    said["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said["live"] = slot.live() is not None
    losses_of(step, 3)
elif scenario == "users-profiler-on":
    step = decorator.trace(make_step())
    tf.profiler.experimental.start("theirs")
    said["results"] = quiet(lambda: losses_of(step))
    tf.profiler.experimental.stop()
    said["theirs"] = sum(name.endswith(".xplane.pb") for _, _, names in os.walk("theirs") for name in names)
elif scenario == "user-starts-profiler":
    step = decorator.trace(make_step())
    losses_of(step, 3)
    tf.profiler.experimental.start("theirs")
    losses_of(step, 5)
    tf.profiler.experimental.stop()
    said["theirs"] = sum(name.endswith(".xplane.pb") for _, _, names in os.walk("theirs") for name in names)
elif scenario == "summary-trace":

    def graphs_of(step):
        tf.summary.trace_on(graph=True, profiler=False)
        losses_of(step)
        exported = tf.compat.v1.RunMetadata()
        exported.CopyFrom(profiler_context().export_run_metadata())
        tf.summary.trace_off()
        return sorted(len(one.pre_optimization_graph.node) for one in exported.function_graphs)

    def profiler_context():
        from tensorflow.python.eager import context

        return context.context()

    said["plain"] = graphs_of(make_step())
    said["traced"] = graphs_of(decorator.trace(make_step()))
elif scenario == "folder-removed":
    os.mkdir("gone")
    step = decorator.trace("gone/trace.pb")(make_step())
    os.rmdir("gone")
    said["results"] = quiet(lambda: losses_of(step))
elif scenario == "disk-full":
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    step = decorator.trace(make_step())
    losses_of(step, 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
    said["results"] = quiet(lambda: losses_of(step, 6))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    said["files"] = sorted(os.listdir("."))
elif scenario == "warnings-are-errors":
    warnings.simplefilter("error")
    os.mkdir("gone")
    step = decorator.trace("gone/trace.pb")(make_step())
    os.rmdir("gone")
    said["results"] = losses_of(step)
elif scenario == "disabled":
    os.environ["TFPLACE_DISABLE"] = "1"

    def plain(x):
        return x

    compiled = make_step()
    said["same"] = [
        decorator.trace(plain) is plain,
        decorator.trace("no/such/folder/x.txt", skip=-3)(plain) is plain,
        decorator.trace(compiled) is compiled,
    ]
    with decorator.capture("no/such/folder/x.txt"):
        said["results"] = losses_of(compiled)
elif scenario == "looks-the-same":
    import inspect
    import pickle

    compiled = make_step()
    kind = type(compiled)
    traced = decorator.trace(compiled)
    said["same_object"] = traced is compiled
    said["isinstance"] = isinstance(traced, kind)
    said["signature"] = str(inspect.signature(traced)) == str(inspect.signature(compiled))
    said["concrete"] = traced.get_concrete_function(tf.TensorSpec([], tf.float32)).name.startswith(b"__inference_step")
    losses_of(traced)
    said["type_afterwards"] = type(traced) is kind

    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.weight = tf.Variable(2.0)

        @decorator.trace("method.pb")
        @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
        def step(self, x):
            "Multiply."
            return self.weight * x

    one, other = Model(), Model()
    other.weight.assign(3.0)
    said["method"] = [float(one.step(tf.constant(2.0))), float(other.step(tf.constant(2.0)))]
    tf.saved_model.save(one, "saved")
    loaded = tf.saved_model.load("saved")
    said["saved"] = float(loaded.step(tf.constant(5.0)))

    def documented(a, b: int = 3, *, c):
        "Does things."
        return a

    wrapped = decorator.trace("plain.pb")(documented)
    said["wrapped"] = [
        str(inspect.signature(wrapped)) == str(inspect.signature(documented)),
        wrapped.__doc__,
        wrapped.__name__,
        wrapped(1, c=2),
    ]
    said["pickled"] = pickle.loads(pickle.dumps(losses_of)) is losses_of
elif scenario == "misuse":
    from tfplace.errors import TfplaceError

    def attempt(action):
        try:
            action()
        except TfplaceError as error:
            return f"{error.slug}: {error}"
        return None

    class Thing:
        pass

    async def coroutine():
        pass

    said["errors"] = [
        attempt(lambda: decorator.trace("trace.txt")),
        attempt(lambda: decorator.trace("no/such/folder/trace.pb")),
        attempt(lambda: decorator.trace("trace.pb", skip=-1)),
        attempt(lambda: decorator.trace("trace.pb", steps=0)),
        attempt(lambda: decorator.trace(Thing)),
        attempt(lambda: decorator.trace(Thing())),
        attempt(lambda: decorator.trace(coroutine)),
        attempt(lambda: decorator.trace(staticmethod(losses_of))),
        attempt(lambda: decorator.trace("trace.pb")(3)),
    ]
elif scenario == "stateful-late":

    def random_step():
        with tf.device("/CPU:0"):
            weight = tf.Variable(1.0)

        @tf.function
        def step(x):
            weight.assign_add(x)
            return weight

        return step

    step = random_step()
    said["plain"] = [float(step(1.0)) for _ in range(6)]
    step = random_step()
    said["traced"] = []
    for number in range(6):
        if number == 3:
            with decorator.capture("trace.pb"):
                said["traced"].append(float(step(1.0)))
        else:
            said["traced"].append(float(step(1.0)))
elif scenario == "gan":
    with tf.device("/CPU:0"):
        a, b = tf.Variable(1.0, name="generator"), tf.Variable(1.0, name="discriminator")

    @tf.function
    def generator_step(x):
        a.assign_add(x)
        return a * 2.0 + tf.exp(a)

    @tf.function
    def discriminator_step(x):
        b.assign_add(x)
        return b

    @decorator.trace
    def step(x):
        return generator_step(x) + discriminator_step(x)

    said["results"] = losses_of(step)
elif scenario == "retracing":
    weight = tf.Variable(1.0)
    compiled = decorator.trace(tf.function(lambda x: weight.assign_add(tf.reduce_sum(x))))
    for number in range(8):
        compiled(tf.ones([number % 2 + 1]))
elif scenario == "text":
    for path in ("a.pbtxt", "b.pb", "c.pbtxt.gz", "d.pb.gz"):
        losses_of(decorator.trace(path)(make_step()))
    losses_of(decorator.trace("e.pb", xplane=True, skip=0, steps=1, accelerator="CPU:1")(make_step()))
    said["files"] = sorted(os.listdir("."))
elif scenario == "eager":

    @decorator.trace
    def step(x):
        return x + 1.0

    said["results"] = quiet(lambda: losses_of(step))
elif scenario == "afterwards":
    from leftovers import TF, left_behind

    losses_of(decorator.trace(make_step()))
    losses_of(make_step())
    said["left"] = left_behind()
    exported = TF.eager_context.export_run_metadata()
    said["graphs"] = 0 if exported is None else len(exported.function_graphs)
elif scenario == "argument-moves":
    compiled = decorator.trace(make_step())
    for number in range(8):
        with tf.device(DEVICE if number == 4 else "/CPU:0"):
            x = tf.constant(float(number)) + 0.0
        compiled(x)
elif scenario == "ctrl-c-in-step":
    compiled = make_step()

    @decorator.trace
    def step(x):
        result = compiled(x)
        if float(x) == 4.0:
            raise KeyboardInterrupt
        return result

    try:
        losses_of(step)
    except KeyboardInterrupt:
        said["error"] = "KeyboardInterrupt"
elif scenario == "large-constant":
    values = tf.constant([[float(i * j) for i in range(100)] for j in range(100)]).numpy()

    @decorator.trace
    @tf.function
    def step(x):
        with tf.device(DEVICE):
            return tf.reduce_sum(x * values)

    said["results"] = losses_of(step)
elif scenario == "autograph":

    @tf.function
    @decorator.trace("below.pb")
    def below(x):
        if tf.reduce_sum(x) > 2.0:
            return x * 2.0
        return x

    @decorator.trace("plain.pb")
    def plain(x):
        if tf.reduce_sum(x) > 2.0:
            return x * 2.0
        return x

    said["below"] = losses_of(below)
    said["retraced"] = [float(tf.reduce_sum(below(tf.ones([size])))) for size in (1, 2, 3, 4)]
    said["plain"] = losses_of(plain)
    outer = tf.function(lambda x: plain(x) + 1.0)
    said["outer"] = losses_of(outer)
elif scenario == "few-calls":
    losses_of(decorator.trace(make_step()), 1)
    slot.live().finish()
elif scenario == "cost":

    def bare(x):
        return x

    def per_call(function, count=200_000):
        best = 1e9
        for _ in range(7):
            began = time.perf_counter_ns()
            for _ in range(count):
                function(1)
            best = min(best, (time.perf_counter_ns() - began) / count)
        return best

    wrapped = decorator.trace("bare.pb", skip=0, steps=1)(bare)
    quiet(lambda: wrapped(1))
    compiled = make_step()
    said["bare_ns"] = per_call(bare)
    said["traced_ns"] = per_call(wrapped)
    traced = decorator.trace(make_step())
    losses_of(traced)
    x = tf.constant(1.0)
    said["tf_function_us"] = per_call(lambda _: compiled(x), 2000) / 1e3
    said["tf_function_traced_us"] = per_call(lambda _: traced(x), 2000) / 1e3
else:
    raise SystemExit(f"no scenario {scenario}")

said["live"] = slot.live() is not None
print(json.dumps(said))
