"""Prediction only, with weights that were restored on the CPU: a v1 Session program."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
BATCH = 16


def build(accelerator: str) -> tuple[Any, dict[Any, Any]]:
    """Build the graph; return what one prediction fetches and feeds."""
    start = v1.truncated_normal_initializer(stddev=5e-2, seed=1)
    features = v1.placeholder(tf.float32, [BATCH, 1024], name="features")
    outputs = features
    for layer, shape in (("hidden1", [1024, 512]), ("hidden2", [512, 256]), ("logits", [256, 10])):
        with v1.variable_scope(layer):
            with tf.device("/cpu:0"):
                weights = v1.get_variable("weights", shape, initializer=start, use_resource=True)
                biases = v1.get_variable("biases", shape[1:], initializer=start, use_resource=True)
            with tf.device(accelerator):
                outputs = tf.nn.bias_add(tf.matmul(outputs, weights), biases)
                if layer != "logits":
                    outputs = tf.nn.relu(outputs)
    with tf.device(accelerator):
        probabilities = tf.nn.softmax(outputs, name="probabilities")
    random = np.random.default_rng(1)
    return probabilities, {features: random.random(features.shape, np.float32)}
