"""The cifar10 tutorial's mistake in TF2: weights made on the CPU, the step on the accelerator.

Usage: cifar.py HOW [fixed|host]; host: the whole step on the CPU too
"""

import sys

import tensorflow as tf
from common import HOST, STEPS, batches, say, two_devices

how = sys.argv[1]
device = two_devices()
device = HOST if "host" in sys.argv else device
home = device if "fixed" in sys.argv else HOST
tf.random.set_seed(7)
if how != "none":
    import tfplace.capture.decorator as tfplace

with tf.device(home):
    conv = tf.Variable(tf.random.normal([5, 5, 3, 16], stddev=0.05), name="conv1/weights")
    fc = tf.Variable(tf.random.normal([6 * 6 * 16, 10], stddev=0.05), name="fc1/weights")
with tf.device(device):
    bias = tf.Variable(tf.zeros([10]), name="fc1/biases")
WEIGHTS = [conv, fc, bias]


def loss_of(images, labels):
    hidden = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(images, conv, 1, "SAME")), 4, 4, "SAME")
    hidden = tf.nn.dropout(tf.reshape(hidden, [tf.shape(images)[0], -1]), 0.5)
    logits = tf.matmul(hidden, fc) + bias + 0.01 * tf.random.normal([10])
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def train_step(images, labels):
    with tf.device(device):
        with tf.GradientTape() as tape:
            loss = loss_of(images, labels)
        for weight, gradient in zip(WEIGHTS, tape.gradient(loss, WEIGHTS), strict=True):
            weight.assign_sub(0.01 * gradient)
    return loss


if how == "above":
    step = tfplace.trace(tf.function(train_step))
elif how == "below":
    step = tf.function(tfplace.trace("trace.pb")(train_step))
elif how == "method":

    class Trainer:
        @tfplace.trace
        @tf.function
        def step(self, images, labels):
            return train_step(images, labels)

    step = Trainer().step
elif how == "tape":
    forward = tf.function(loss_of)

    @tfplace.trace("trace.pb")
    def step(images, labels):
        with tf.device(device):
            with tf.GradientTape() as tape:
                loss = forward(images, labels)
            for weight, gradient in zip(WEIGHTS, tape.gradient(loss, WEIGHTS), strict=True):
                weight.assign_sub(0.01 * gradient)
        return loss
elif how == "tape-none":
    forward = tf.function(loss_of)

    def step(images, labels):
        with tf.device(device):
            with tf.GradientTape() as tape:
                loss = forward(images, labels)
            for weight, gradient in zip(WEIGHTS, tape.gradient(loss, WEIGHTS), strict=True):
                weight.assign_sub(0.01 * gradient)
        return loss
elif how == "jit":
    step = tfplace.trace(tf.function(train_step, jit_compile=True))
else:
    step = tf.function(train_step)

losses = []
for number, (images, labels) in enumerate(batches(STEPS)):
    if (how, number) in (("capture", 5), ("capture-first", 0)):
        with sys.modules["tfplace"].capture("trace.pb"):
            loss = step(images, labels)
    else:
        loss = step(images, labels)
    losses.append(loss)
say(losses, [weight.numpy() for weight in WEIGHTS])
