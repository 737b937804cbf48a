"""A function without variables that runs so often, and then, where asked for, a smaller one that has a variable."""

import sys

import tensorflow as tf


@tf.function
def infer(x):
    for _ in range(20):
        x = tf.nn.relu(x @ x)
    return tf.reduce_sum(x)


@tf.function
def train(x):
    return weight.assign_add(tf.reduce_sum(x))


weight = tf.Variable(0.0)
for _ in range(int(sys.argv[1])):
    infer(tf.ones([8, 8]))
for _ in range(int(sys.argv[2])):
    train(tf.ones([8, 8]))
