"""A pooling layer without a GPU kernel in the middle of a convnet: a v1 Session program.

FractionalMaxPool exists on the CPU only. Soft placement puts it there, so the activations go up to the
host and come back, and in the backward pass their gradients do the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
BATCH, SIZE, POOLED, CHANNELS = 32, 24, 16, 32


def build(accelerator: str) -> tuple[Any, dict[Any, Any]]:
    """Build the graph; return what one training step fetches and feeds."""
    start = v1.truncated_normal_initializer(stddev=5e-2, seed=1)
    images = v1.placeholder(tf.float32, [BATCH, SIZE, SIZE, 3], name="images")
    labels = v1.placeholder(tf.int64, [BATCH], name="labels")
    with tf.device(accelerator):
        kernel = v1.get_variable("conv1/kernel", [5, 5, 3, CHANNELS], initializer=start, use_resource=True)
        outputs = tf.nn.relu(tf.nn.conv2d(images, kernel, strides=1, padding="SAME"), name="relu1")
        ratio = SIZE / POOLED
        outputs, _, _ = tf.nn.fractional_max_pool(outputs, [1.0, ratio, ratio, 1.0], seed=1, name="pool1")
        outputs = tf.reshape(outputs, [BATCH, POOLED * POOLED * CHANNELS])
        weights = v1.get_variable(
            "softmax/weights", [POOLED * POOLED * CHANNELS, 10], initializer=start, use_resource=True
        )
        logits = tf.matmul(outputs, weights, name="logits")
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(each, name="loss")
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    random = np.random.default_rng(1)
    feed = {images: random.random(images.shape, np.float32), labels: random.integers(0, 10, BATCH)}
    return [loss, train], feed
