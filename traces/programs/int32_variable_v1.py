"""An int32 variable asked for on the GPU, under soft placement: a v1 Session program.

An int32 variable has no GPU kernel, so it lands on the CPU, and its update with it: nothing fails, nothing
is said. What each step adds comes up from the GPU, and the new counts go down again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
BATCH, FEATURES, CLASSES = 64, 1024, 1000


def build(accelerator: str) -> tuple[Any, dict[Any, Any]]:
    """Build the graph; return what one training step fetches and feeds."""
    start = v1.truncated_normal_initializer(stddev=5e-2, seed=1)
    features = v1.placeholder(tf.float32, [BATCH, FEATURES], name="features")
    labels = v1.placeholder(tf.int64, [BATCH], name="labels")
    with tf.device(accelerator):
        seen = v1.get_variable("seen", [CLASSES], tf.int32, v1.zeros_initializer(), use_resource=False, trainable=False)
        hits = tf.cast(tf.reduce_sum(tf.one_hot(labels, CLASSES), axis=0), tf.int32, name="hits")
        count = v1.assign_add(seen, hits, name="count")
        weights = v1.get_variable("softmax/weights", [FEATURES, CLASSES], initializer=start, use_resource=False)
        rarity = tf.math.rsqrt(tf.cast(count, tf.float32) + 1.0, name="rarity")
        logits = tf.multiply(tf.matmul(features, weights), rarity, name="logits")
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(each, name="loss")
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    random = np.random.default_rng(1)
    feed = {features: random.random(features.shape, np.float32), labels: random.integers(0, CLASSES, BATCH)}
    return [loss, train], feed
