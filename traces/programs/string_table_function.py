"""Words to numbers by a lookup table, then rows of an embedding on the accelerator: a TF2 step in a tf.function.

Strings live in host memory only, so the table and its lookup are on the CPU wherever they are asked for.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

BATCH, WORDS, WIDTH = 64, 8, 64
VOCABULARY = [f"word{number}" for number in range(1000)]


def build(accelerator: str) -> tuple[Any, tuple[Any, ...]]:
    """Make the table and the weights; return the training step and its arguments."""
    tf.random.set_seed(1)
    pairs = tf.lookup.KeyValueTensorInitializer(VOCABULARY, tf.range(len(VOCABULARY), dtype=tf.int64))
    table = tf.lookup.StaticHashTable(pairs, default_value=0, name="vocabulary")
    with tf.device(accelerator):
        embedding = tf.Variable(tf.random.truncated_normal([len(VOCABULARY), WIDTH]), name="embedding/table")
        weights = tf.Variable(tf.random.truncated_normal([WORDS * WIDTH, 2]), name="dense/weights")

    @tf.function
    def train_step(words: Any, labels: Any) -> Any:
        ids = table.lookup(words)
        with tf.device(accelerator):
            with tf.GradientTape() as tape:
                rows = tf.reshape(tf.nn.embedding_lookup(embedding, ids), [BATCH, WORDS * WIDTH])
                logits = tf.matmul(rows, weights)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            of_table, of_weights = tape.gradient(loss, [embedding, weights])
            embedding.scatter_sub(tf.IndexedSlices(0.1 * of_table.values, of_table.indices))
            weights.assign_sub(0.1 * of_weights)
            return loss

    with tf.device("/cpu:0"):
        numbers = tf.random.uniform([BATCH, WORDS], 0, len(VOCABULARY), tf.int32)
        words = tf.strings.join(["word", tf.strings.as_string(numbers)])
        labels = tf.random.uniform([BATCH], 0, 2, tf.int64)
    return train_step, (words, labels)
