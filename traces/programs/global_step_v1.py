"""The step counter on the CPU, and a learning rate that decays by it: a v1 Session program.

As in many tutorials `global_step` is made under `tf.device("/cpu:0")`. It is 8 bytes and stays there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
BATCH = 64


def build(accelerator: str) -> tuple[Any, dict[Any, Any]]:
    """Build the graph; return what one training step fetches and feeds."""
    start = v1.truncated_normal_initializer(stddev=5e-2, seed=1)
    features = v1.placeholder(tf.float32, [BATCH, 256], name="features")
    labels = v1.placeholder(tf.int64, [BATCH], name="labels")
    with tf.device("/cpu:0"):
        global_step = v1.train.get_or_create_global_step()
        rate = v1.train.exponential_decay(0.1, global_step, 100, 0.96, name="learning_rate")
    with tf.device(accelerator):
        weights = v1.get_variable("softmax/weights", [256, 10], initializer=start, use_resource=True)
        biases = v1.get_variable("softmax/biases", [10], initializer=start, use_resource=True)
        logits = tf.nn.bias_add(tf.matmul(features, weights), biases)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(each, name="loss")
        train = v1.train.GradientDescentOptimizer(rate).minimize(loss, global_step)
    random = np.random.default_rng(1)
    feed = {features: random.random(features.shape, np.float32), labels: random.integers(0, 10, BATCH)}
    return [loss, train], feed
