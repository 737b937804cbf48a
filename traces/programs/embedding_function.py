"""An embedding table on the CPU, dense layers on the accelerator: a TF2 training step in a tf.function."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

BATCH, WORDS, TABLE_ROWS, WIDTH = 32, 8, 100_000, 64


def build(accelerator: str) -> tuple[Any, tuple[Any, ...]]:
    """Make the table and the weights; return the training step and its arguments."""
    tf.random.set_seed(1)
    with tf.device("/cpu:0"):
        table = tf.Variable(tf.random.truncated_normal([TABLE_ROWS, WIDTH]), name="embedding/table")
    with tf.device(accelerator):
        weights = tf.Variable(tf.random.truncated_normal([WORDS * WIDTH, 10]), name="dense/weights")
        biases = tf.Variable(tf.zeros([10]), name="dense/biases")

    @tf.function
    def train_step(ids: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            with tf.device("/cpu:0"):
                rows = tf.nn.embedding_lookup(table, ids)
            with tf.device(accelerator):
                logits = tf.nn.bias_add(tf.matmul(tf.reshape(rows, [BATCH, WORDS * WIDTH]), weights), biases)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        with tf.device(accelerator):
            of_table, of_weights, of_biases = tape.gradient(loss, [table, weights, biases])
            scaled = 0.1 * of_table.values
            weights.assign_sub(0.1 * of_weights)
            biases.assign_sub(0.1 * of_biases)
        with tf.device("/cpu:0"):
            table.scatter_sub(tf.IndexedSlices(scaled, of_table.indices))
        return loss

    with tf.device("/cpu:0"):
        ids = tf.random.uniform([BATCH, WORDS], 0, TABLE_ROWS, tf.int64)
        labels = tf.random.uniform([BATCH], 0, 10, tf.int64)
    return train_step, (ids, labels)
