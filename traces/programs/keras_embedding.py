"""`Model.fit` with an Embedding layer pinned to the CPU, as one does with a table too large for the GPU."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

BATCH, WORDS, TABLE_ROWS, WIDTH, STEPS = 64, 16, 50_000, 64, 6


class Classifier(tf.keras.Model):  # type: ignore[misc]
    """Mean of word vectors, then a dense layer; the table and its lookup are on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        with tf.device("/cpu:0"):
            self.embedding = tf.keras.layers.Embedding(TABLE_ROWS, WIDTH, name="embedding")
            self.embedding.build([None, WORDS])
        self.classes = tf.keras.layers.Dense(10, name="classes")

    def call(self, words: Any) -> Any:
        with tf.device("/cpu:0"):
            rows = self.embedding(words)
        return self.classes(tf.reduce_mean(rows, axis=1))


def fit(accelerator: str, callback: Any) -> None:
    """Train for one epoch."""
    del accelerator  # what is not pinned goes there by itself
    tf.keras.utils.set_random_seed(1)
    words = tf.random.uniform([BATCH * STEPS, WORDS], 0, TABLE_ROWS, tf.int64)
    labels = tf.random.uniform([BATCH * STEPS], 0, 10, tf.int64)
    with tf.device("/cpu:0"):
        dataset = tf.data.Dataset.from_tensor_slices((words, labels)).batch(BATCH, drop_remainder=True)
    model = Classifier()
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # With a GPU there Keras would compile the step by XLA, which hides all placement.
    model.compile(tf.keras.optimizers.SGD(0.1), loss, jit_compile=False)
    model.fit(dataset, verbose=0, shuffle=False, callbacks=[callback])
