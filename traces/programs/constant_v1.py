"""A frozen matrix of 50 MB that is a constant of the graph, on the CPU: a v1 Session program.

Word vectors, a codebook or a mask, loaded with NumPy and handed to `tf.constant` under `tf.device("/cpu:0")`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
BATCH, ENTRIES, WIDTH = 16, 12_500, 1000


def build(accelerator: str) -> tuple[Any, dict[Any, Any]]:
    """Build the graph; return what one prediction fetches and feeds."""
    random = np.random.default_rng(1)
    queries = v1.placeholder(tf.float32, [BATCH, WIDTH], name="queries")
    with tf.device("/cpu:0"):
        codebook = tf.constant(random.random([ENTRIES, WIDTH], np.float32), name="codebook")
    with tf.device(accelerator):
        scores = tf.matmul(queries, codebook, transpose_b=True, name="scores")
        nearest = tf.argmax(scores, axis=1, name="nearest")
    return nearest, {queries: random.random(queries.shape, np.float32)}
