"""An embedding table on the CPU, dense layers on the accelerator: a v1 Session program.

Only the rows that were looked up cross, and the rows of the gradient come back; the table stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
BATCH, WORDS, TABLE_ROWS, WIDTH = 32, 8, 100_000, 64


def build(accelerator: str) -> tuple[Any, dict[Any, Any]]:
    """Build the graph; return what one training step fetches and feeds."""
    start = v1.truncated_normal_initializer(stddev=5e-2, seed=1)
    ids = v1.placeholder(tf.int64, [BATCH, WORDS], name="ids")
    labels = v1.placeholder(tf.int64, [BATCH], name="labels")
    with tf.device("/cpu:0"):
        table = v1.get_variable("embedding/table", [TABLE_ROWS, WIDTH], initializer=start, use_resource=False)
        rows = tf.nn.embedding_lookup(table, ids, name="embedding/rows")
    with tf.device(accelerator):
        weights = v1.get_variable("dense/weights", [WORDS * WIDTH, 10], initializer=start, use_resource=False)
        biases = v1.get_variable("dense/biases", [10], initializer=start, use_resource=False)
        logits = tf.nn.bias_add(tf.matmul(tf.reshape(rows, [BATCH, WORDS * WIDTH]), weights), biases)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    random = np.random.default_rng(1)
    feed = {
        ids: random.integers(0, TABLE_ROWS, [BATCH, WORDS]),
        labels: random.integers(0, 10, BATCH),
    }
    return [loss, train], feed
