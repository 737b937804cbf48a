"""MirroredStrategy on two GPUs: each holds its own copy of the weights, and the gradients are added up.

The gradients are reduced by copying (HierarchicalCopyAllReduce), not by NCCL, which needs real GPUs.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

BATCH = 64  # of both GPUs together


def build(accelerator: str, second_accelerator: str) -> tuple[Any, tuple[Any, ...]]:
    """Make the mirrored weights; return the training step and its arguments."""
    tf.random.set_seed(1)
    strategy = tf.distribute.MirroredStrategy(
        [accelerator, second_accelerator], tf.distribute.HierarchicalCopyAllReduce()
    )
    with strategy.scope():
        weights = tf.Variable(tf.random.truncated_normal([784, 256], stddev=5e-2), name="hidden/weights")
        biases = tf.Variable(tf.zeros([256]), name="hidden/biases")
        last = tf.Variable(tf.random.truncated_normal([256, 10], stddev=5e-2), name="logits/weights")

    def replica_step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = tf.nn.relu(tf.nn.bias_add(tf.matmul(images, weights), biases))
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.matmul(outputs, last))
            loss = tf.reduce_sum(each) / BATCH
        variables = [weights, biases, last]
        gradients = tf.distribute.get_replica_context().all_reduce("SUM", tape.gradient(loss, variables))
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    @tf.function
    def train_step(images: Any, labels: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(replica_step, (images, labels)), axis=None)

    images = tf.random.uniform([BATCH, 784])
    labels = tf.random.uniform([BATCH], 0, 10, tf.int64)
    dataset = tf.data.Dataset.from_tensors((images, labels)).unbatch().batch(BATCH).repeat()
    return train_step, next(iter(strategy.experimental_distribute_dataset(dataset)))
