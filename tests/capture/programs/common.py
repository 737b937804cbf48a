"""What the programs share: two logical CPUs, the second of which plays the accelerator; printed results."""

import hashlib
import os

import numpy as np
import tensorflow as tf

HOST, DEVICE = "/CPU:0", "/CPU:1"


def two_devices():
    if tf.config.list_physical_devices("GPU"):
        return "/GPU:0"
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return DEVICE


def batches(count, size=8, seed=0):
    random = np.random.RandomState(seed)
    for _ in range(count):
        yield random.rand(size, 24, 24, 3).astype("f4"), random.randint(0, 10, size)


def say(values, weights=()):
    """Print results to the last bit, and one digest of all weights."""
    digest = hashlib.sha256(b"".join(np.asarray(weight).tobytes() for weight in weights)).hexdigest()
    print(" ".join(float(value).hex() for value in values), digest)


STEPS = int(os.environ.get("STEPS", "8"))
