"""A script that nobody edits: arguments, an evaluation before the training, an exit code. Usage: script.py END"""

import os
import sys

os.environ["TF_DETERMINISTIC_OPS"] = "1"  # must be set before TensorFlow is imported

import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
assert __name__ == "__main__"
assert sys.argv[0].endswith("script.py")
weight = tf.Variable(1.0, name="weight")
X = tf.constant(1.0)


@tf.function
def preprocess(x):
    return x * 2.0


@tf.function
def evaluate(x):
    return weight * x


@tf.function
def train(x):
    with tf.device("/CPU:1"):
        for _ in range(3):
            weight.assign_add(tf.sin(x) * weight)
    return weight


for _ in range(20):
    preprocess(X)
for _ in range(5):
    evaluate(X)
for _ in range(6):
    train(preprocess(X))
print(float(train(X)).hex(), sys.argv[1:])
if sys.argv[1] == "exit":
    sys.exit(7)
if sys.argv[1] == "raise":
    raise ValueError("of the script")
