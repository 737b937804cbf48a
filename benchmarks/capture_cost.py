"""What capture costs: a call that is not captured, and a captured step beside TensorFlow's own tracing of it.

    python benchmarks/capture_cost.py

Ratios are taken side by side in one run; the absolute times are this machine's.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from tfplace.capture.decorator import trace

ROUNDS = 7


def nanoseconds_per_call(function, argument, count: int) -> float:
    """Return the best of several rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        for _ in range(count):
            function(argument)
        best = min(best, (time.perf_counter_ns() - began) / count)
    return best


def times_of(step, x, count: int) -> list[int]:
    """Return the nanoseconds of each of `count` steps, results fetched."""
    times = []
    for _ in range(count):
        began = time.perf_counter_ns()
        step(x).numpy()
        times.append(time.perf_counter_ns() - began)
    return times


def make_step():
    """Return a training step of six 256 x 256 layers on the second logical CPU, weights on the first."""
    with tf.device("/CPU:0"):
        weights = [tf.Variable(tf.random.normal([256, 256], stddev=0.05)) for _ in range(6)]

    @tf.function
    def step(x):
        with tf.device("/CPU:1"):
            with tf.GradientTape() as tape:
                hidden = x
                for weight in weights:
                    hidden = tf.nn.relu(tf.matmul(hidden, weight))
                loss = tf.reduce_mean(hidden)
            for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
                weight.assign_sub(1e-3 * gradient)
        return loss

    return step


def main() -> None:
    """Measure and print."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    folder = tempfile.mkdtemp()
    x = tf.random.normal([64, 256])

    def bare(value):
        return value

    wrapped = trace(f"{folder}/bare.pb", skip=0, steps=1)(bare)
    wrapped(1)
    plain_ns, wrapped_ns = nanoseconds_per_call(bare, 1, 200_000), nanoseconds_per_call(wrapped, 1, 200_000)
    print(
        f"call of a Python function after its capture: {wrapped_ns - plain_ns:.0f} ns over the bare {plain_ns:.0f} ns"
    )

    plain = make_step()
    times_of(plain, x, 30)
    theirs, ours, untraced, finish, after, later = [], [], [], [], [], []
    for number in range(ROUNDS):
        untraced += times_of(plain, x, 30)
        tf.profiler.experimental.start(folder, tf.profiler.experimental.ProfilerOptions(host_tracer_level=2))
        theirs += times_of(plain, x, 30)
        tf.profiler.experimental.stop()
        traced = trace(f"{folder}/{number}.pb", skip=20, steps=30)(make_step())
        times = times_of(traced, x, 50)
        ours += times[20:49]
        finish.append(times[49] / 1e6)
        after += times_of(traced, x, 30)  # the disk and the allocator still have the trace to digest
        times_of(traced, x, 70)
        later += times_of(traced, x, 30)
    base = statistics.median(theirs)
    print(f"step: untraced {statistics.median(untraced) / 1e3:.0f} us,", end=" ")
    print(f"after its capture {statistics.median(after) / 1e3:.0f} us, 100 steps later", end=" ")
    print(f"{statistics.median(later) / 1e3:.0f} us")
    print(f"traced step: {statistics.median(ours) / 1e3:.0f} us, TensorFlow's profiler {base / 1e3:.0f} us,", end=" ")
    print(f"ratio {statistics.median(ours) / base:.2f}; once, at the end: {statistics.median(finish):.0f} ms")


if __name__ == "__main__":
    main()
