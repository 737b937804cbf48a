"""The convnet of TensorFlow's cifar10 tutorial, as a TF2 training step in a tf.function."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

BATCH = 128
SHAPES = {
    "conv1/weights": (5, 5, 3, 64),
    "conv1/biases": (64,),
    "conv2/weights": (5, 5, 64, 64),
    "conv2/biases": (64,),
    "local3/weights": (2304, 384),
    "local3/biases": (384,),
    "local4/weights": (384, 192),
    "local4/biases": (192,),
    "softmax_linear/weights": (192, 10),
    "softmax_linear/biases": (10,),
}


def inference(images: Any, weights: dict[str, Any]) -> Any:
    """Return logits [BATCH, 10] of images [BATCH, 24, 24, 3]."""
    outputs = images
    for layer in ("conv1", "conv2"):
        outputs = tf.nn.conv2d(outputs, weights[f"{layer}/weights"], 1, "SAME", name=layer)
        outputs = tf.nn.relu(tf.nn.bias_add(outputs, weights[f"{layer}/biases"]))
        outputs = tf.nn.max_pool2d(outputs, 3, 2, "SAME")
    outputs = tf.reshape(outputs, [BATCH, 6 * 6 * 64])
    for layer in ("local3", "local4"):
        outputs = tf.matmul(outputs, weights[f"{layer}/weights"], name=layer)
        outputs = tf.nn.relu(tf.nn.bias_add(outputs, weights[f"{layer}/biases"]))
    logits = tf.matmul(outputs, weights["softmax_linear/weights"], name="softmax_linear")
    return tf.nn.bias_add(logits, weights["softmax_linear/biases"])


def build(accelerator: str, weights_on: str) -> tuple[Any, tuple[Any, ...]]:
    """Make the weights on `weights_on`; return the training step and its arguments."""
    tf.random.set_seed(1)
    with tf.device(weights_on):
        weights = {
            name: tf.Variable(tf.random.truncated_normal(shape, stddev=5e-2), name=name)
            for name, shape in SHAPES.items()
        }

    @tf.function
    def train_step(images: Any, labels: Any) -> Any:
        with tf.device(accelerator):
            with tf.GradientTape() as tape:
                logits = inference(images, weights)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            variables = list(weights.values())
            for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
                variable.assign_sub(0.1 * gradient)
            return loss

    with tf.device("/cpu:0"):
        images = tf.random.uniform([BATCH, 24, 24, 3])
        labels = tf.random.uniform([BATCH], 0, 10, tf.int64)
    return train_step, (images, labels)
