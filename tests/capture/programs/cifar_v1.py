"""The same in v1. Usage: cifar_v1.py none|plain-none|hook|session [fixed]"""

import sys

import tensorflow as tf
from common import HOST, STEPS, batches, say, two_devices

how = sys.argv[1]
device = two_devices()
home = device if "fixed" in sys.argv else HOST
tf1 = tf.compat.v1
tf1.disable_eager_execution()
tf1.set_random_seed(7)

images = tf1.placeholder(tf.float32, [None, 24, 24, 3], name="images")
labels = tf1.placeholder(tf.int64, [None], name="labels")
with tf1.device(home):
    conv = tf1.get_variable("conv1/weights", [5, 5, 3, 16], use_resource=False)
    fc = tf1.get_variable("fc1/weights", [6 * 6 * 16, 10], use_resource=True)
with tf1.device(device):
    bias = tf1.get_variable("fc1/biases", [10], initializer=tf1.zeros_initializer(), use_resource=True)
    hidden = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(images, conv, 1, "SAME")), 4, 4, "SAME")
    hidden = tf.nn.dropout(tf.reshape(hidden, [-1, 6 * 6 * 16]), 0.5)
    logits = tf.matmul(hidden, fc) + bias + 0.01 * tf.random.normal([10])
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    train = tf1.train.GradientDescentOptimizer(0.01).minimize(loss)

losses = []


def last_weights(session, x, y):
    return session.run([conv, fc, bias], {images: x, labels: y})


if how in ("hook", "none"):
    hooks = []
    if how == "hook":
        from tfplace.capture.hook import SessionHook

        hooks = [SessionHook("trace.pb")]
    with tf1.train.MonitoredSession(hooks=hooks) as session:
        for x, y in batches(STEPS):
            losses.append(session.run([train, loss], {images: x, labels: y})[1])
        weights = last_weights(session, x, y)
else:
    session = tf1.Session()
    if how == "session":
        from tfplace.capture.hook import trace_session

        trace_session(session, "trace.pb")
    session.run(tf1.global_variables_initializer())
    for x, y in batches(STEPS):
        losses.append(session.run([train, loss], {images: x, labels: y})[1])
    weights = last_weights(session, x, y)
say(losses, weights)
