"""The convnet of TensorFlow's cifar10 tutorial, as a v1 Session program.

As in the tutorial, `_variable_on_cpu` makes each weight under `tf.device("/cpu:0")`, the layers run
on the accelerator, and so every weight goes down in every step and every gradient comes back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
BATCH = 128


def variable(name: str, shape: list[int], device: str, stddev: float) -> Any:
    """Make one weight on `device` (the tutorial's `_variable_on_cpu`, which always says '/cpu:0')."""
    with tf.device(device):
        start = v1.truncated_normal_initializer(stddev=stddev, seed=1)
        return v1.get_variable(name, shape, initializer=start, use_resource=False)


def convolution(images: Any, name: str, shape: list[int], device: str) -> Any:
    with v1.variable_scope(name):
        kernel = variable("weights", shape, device, 5e-2)
        biases = variable("biases", shape[-1:], device, 1e-2)
        outputs = tf.nn.conv2d(images, kernel, strides=1, padding="SAME")
        return tf.nn.relu(tf.nn.bias_add(outputs, biases))


def dense(inputs: Any, name: str, shape: list[int], device: str) -> Any:
    with v1.variable_scope(name):
        weights = variable("weights", shape, device, 4e-2)
        biases = variable("biases", shape[-1:], device, 1e-2)
        return tf.nn.bias_add(tf.matmul(inputs, weights), biases)


def inference(images: Any, weights_on: str) -> Any:
    """Return logits [BATCH, 10] of images [BATCH, 24, 24, 3]."""
    outputs = convolution(images, "conv1", [5, 5, 3, 64], weights_on)
    outputs = tf.nn.max_pool2d(outputs, 3, 2, "SAME", name="pool1")
    outputs = convolution(outputs, "conv2", [5, 5, 64, 64], weights_on)
    outputs = tf.nn.max_pool2d(outputs, 3, 2, "SAME", name="pool2")
    outputs = tf.reshape(outputs, [BATCH, 6 * 6 * 64])
    outputs = tf.nn.relu(dense(outputs, "local3", [2304, 384], weights_on))
    outputs = tf.nn.relu(dense(outputs, "local4", [384, 192], weights_on))
    return dense(outputs, "softmax_linear", [192, 10], weights_on)


def build(accelerator: str, weights_on: str) -> tuple[Any, dict[Any, Any]]:
    """Build the graph; return what one training step fetches and feeds."""
    images = v1.placeholder(tf.float32, [BATCH, 24, 24, 3], name="images")
    labels = v1.placeholder(tf.int64, [BATCH], name="labels")
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    with tf.device(accelerator):
        logits = inference(images, weights_on)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(each, name="loss")
        gradients = optimizer.compute_gradients(loss)
    with tf.device(weights_on):  # the update runs where the weights are
        train = optimizer.apply_gradients(gradients)
    random = np.random.default_rng(1)
    feed = {images: random.random(images.shape, np.float32), labels: random.integers(0, 10, BATCH)}
    return [loss, train], feed
