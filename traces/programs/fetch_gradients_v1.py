"""All gradients are fetched in every step, to look at or to log: a v1 Session program.

The weights are on the accelerator; what comes back is one tensor per variable.
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
    features = v1.placeholder(tf.float32, [BATCH, 784], name="features")
    labels = v1.placeholder(tf.int64, [BATCH], name="labels")
    outputs = features
    with tf.device(accelerator):
        for layer, shape in (("hidden1", [784, 1024]), ("hidden2", [1024, 512]), ("logits", [512, 10])):
            with v1.variable_scope(layer):
                weights = v1.get_variable("weights", shape, initializer=start, use_resource=True)
                biases = v1.get_variable("biases", shape[1:], initializer=start, use_resource=True)
            outputs = tf.nn.bias_add(tf.matmul(outputs, weights), biases)
            if layer != "logits":
                outputs = tf.nn.relu(outputs)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=outputs)
        loss = tf.reduce_mean(each, name="loss")
        optimizer = v1.train.GradientDescentOptimizer(0.1)
        pairs = optimizer.compute_gradients(loss)
        train = optimizer.apply_gradients(pairs)
    random = np.random.default_rng(1)
    feed = {features: random.random(features.shape, np.float32), labels: random.integers(0, 10, BATCH)}
    return [loss, train, [gradient for gradient, _ in pairs]], feed
