"""Prediction only, with weights that were restored on the CPU: the signature of a SavedModel, a tf.function."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

BATCH = 16


class Model(tf.Module):  # type: ignore[misc]
    """Three dense layers whose weights stay where they were loaded."""

    def __init__(self, accelerator: str) -> None:
        super().__init__(name="model")
        self.accelerator = accelerator
        self.layers = []
        with tf.device("/cpu:0"):
            for layer, shape in (("hidden1", [1024, 512]), ("hidden2", [512, 256]), ("logits", [256, 10])):
                weights = tf.Variable(tf.random.truncated_normal(shape, stddev=5e-2), name=f"{layer}/weights")
                biases = tf.Variable(tf.zeros(shape[1:]), name=f"{layer}/biases")
                self.layers.append((weights, biases))

    def predict(self, features: Any) -> Any:
        """Return probabilities [BATCH, 10] of features [BATCH, 1024]."""
        with tf.device(self.accelerator):
            outputs = features
            for weights, biases in self.layers[:-1]:
                outputs = tf.nn.relu(tf.nn.bias_add(tf.matmul(outputs, weights), biases))
            weights, biases = self.layers[-1]
            return tf.nn.softmax(tf.nn.bias_add(tf.matmul(outputs, weights), biases))


def build(accelerator: str) -> tuple[Any, tuple[Any, ...]]:
    """Make the model; return its serving function and its argument."""
    tf.random.set_seed(1)
    serve = tf.function(Model(accelerator).predict)
    with tf.device("/cpu:0"):
        features = tf.random.uniform([BATCH, 1024])
    return serve, (features,)
