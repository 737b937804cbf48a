"""The same training step fed by `feed_dict` and by a tf.data iterator: a v1 Session program.

The weights are on the accelerator, so what crosses in a step is the input.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
BATCH = 64


def batch_from_dataset() -> tuple[Any, Any]:
    """Return images and labels of the next batch; the iterator lives on the CPU, as tf.data does."""
    random = np.random.default_rng(1)
    examples = (
        tf.constant(random.integers(0, 255, [BATCH, 784], np.uint8)),
        tf.constant(random.integers(0, 10, BATCH)),
    )
    with tf.device("/cpu:0"):
        dataset = tf.data.Dataset.from_tensor_slices(examples).repeat()
        dataset = dataset.map(lambda image, label: (tf.cast(image, tf.float32) / 255.0, label))
        dataset = dataset.batch(BATCH, drop_remainder=True).prefetch(1)
        iterator = v1.data.make_initializable_iterator(dataset)
        v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        images, labels = iterator.get_next("next_batch")
    return images, labels


def build(accelerator: str, source: str) -> tuple[Any, dict[Any, Any]]:
    """Build the graph; return what one training step fetches and feeds. `source` is 'feed' or 'dataset'."""
    random = np.random.default_rng(1)
    feed = {}
    if source == "feed":
        images = v1.placeholder(tf.float32, [BATCH, 784], name="images")
        labels = v1.placeholder(tf.int64, [BATCH], name="labels")
        feed = {images: random.random(images.shape, np.float32), labels: random.integers(0, 10, BATCH)}
    else:
        images, labels = batch_from_dataset()
    start = v1.truncated_normal_initializer(stddev=5e-2, seed=1)
    with tf.device(accelerator):
        weights = v1.get_variable("dense/weights", [784, 256], initializer=start, use_resource=False)
        biases = v1.get_variable("dense/biases", [256], initializer=start, use_resource=False)
        outputs = tf.nn.relu(tf.nn.bias_add(tf.matmul(images, weights), biases))
        weights = v1.get_variable("logits/weights", [256, 10], initializer=start, use_resource=False)
        biases = v1.get_variable("logits/biases", [10], initializer=start, use_resource=False)
        logits = tf.nn.bias_add(tf.matmul(outputs, weights), biases)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    return [loss, train], feed
