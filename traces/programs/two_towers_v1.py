"""Two towers (accelerators), each with half the batch, that share weights on the CPU: a v1 Session program.

The pattern of the cifar10 multi-GPU tutorial: the weights and the averaging of the gradients on the
CPU, so each weight goes down once per tower and one gradient per tower comes back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
BATCH = 64


def variable(name: str, shape: list[int]) -> Any:
    with tf.device("/cpu:0"):
        start = v1.truncated_normal_initializer(stddev=5e-2, seed=1)
        return v1.get_variable(name, shape, initializer=start, use_resource=True)


def tower_loss(images: Any, labels: Any) -> Any:
    """Return the loss of one tower: images [BATCH, 24, 24, 3], labels int64[BATCH]."""
    with v1.variable_scope("conv1"):
        outputs = tf.nn.conv2d(images, variable("weights", [5, 5, 3, 16]), strides=2, padding="SAME")
        outputs = tf.nn.relu(tf.nn.bias_add(outputs, variable("biases", [16])))
    outputs = tf.reshape(outputs, [BATCH, 12 * 12 * 16])
    with v1.variable_scope("local3"):
        outputs = tf.matmul(outputs, variable("weights", [2304, 384]))
        outputs = tf.nn.relu(tf.nn.bias_add(outputs, variable("biases", [384])))
    with v1.variable_scope("softmax_linear"):
        logits = tf.nn.bias_add(tf.matmul(outputs, variable("weights", [384, 10])), variable("biases", [10]))
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def build(accelerator: str, second_accelerator: str) -> tuple[Any, dict[Any, Any]]:
    """Build the graph; return what one training step fetches and feeds."""
    random = np.random.default_rng(1)
    with tf.device("/cpu:0"):
        optimizer = v1.train.GradientDescentOptimizer(0.1)
    feed, losses, towers = {}, [], []
    for number, device in enumerate((accelerator, second_accelerator)):
        images = v1.placeholder(tf.float32, [BATCH, 24, 24, 3], name=f"images_{number}")
        labels = v1.placeholder(tf.int64, [BATCH], name=f"labels_{number}")
        feed[images] = random.random(images.shape, np.float32)
        feed[labels] = random.integers(0, 10, BATCH)
        with (
            tf.device(device),
            v1.name_scope(f"tower_{number}"),
            v1.variable_scope(v1.get_variable_scope(), reuse=number > 0),
        ):
            loss = tower_loss(images, labels)
            losses.append(loss)
            towers.append(optimizer.compute_gradients(loss, v1.trainable_variables()))
    with tf.device("/cpu:0"):
        averaged = [((first + second) / 2.0, weight) for (first, weight), (second, _) in zip(*towers, strict=True)]
        train = optimizer.apply_gradients(averaged)
    return [losses, train], feed
