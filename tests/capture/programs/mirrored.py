"""MirroredStrategy on two devices. Usage: mirrored.py none|above|below|capture-first [shared]

shared: one more weight, made on the CPU outside the strategy's scope.
"""

import sys

import tensorflow as tf
from common import HOST, STEPS, say, two_devices

how = sys.argv[1]
two_devices()
gpus = [f"/GPU:{number}" for number in range(len(tf.config.list_physical_devices("GPU")))]
tf.random.set_seed(5)
strategy = tf.distribute.MirroredStrategy(gpus if len(gpus) > 1 else ["/CPU:0", "/CPU:1"])
if how != "none":
    import tfplace.capture.decorator as tfplace
with strategy.scope():
    weights = tf.Variable(tf.random.normal([64, 32], stddev=0.1), name="weights")
    bias = tf.Variable(tf.zeros([32]), name="bias")
if "shared" in sys.argv:
    with tf.device(HOST):
        shared = tf.Variable(tf.random.normal([64, 64], stddev=0.1), name="shared/projection")


def replica_step(x):
    if "shared" in sys.argv:
        x = tf.matmul(x, shared)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.dropout(tf.matmul(x, weights) + bias + 0.1 * tf.random.normal([32]), 0.5) ** 2)
    context = tf.distribute.get_replica_context()
    gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, tape.gradient(loss, [weights, bias]))
    for variable, gradient in zip((weights, bias), gradients, strict=True):
        variable.assign_sub(0.1 * gradient)
    return loss


def train_step(x):
    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica_step, args=(x,)), axis=None)


if how == "above":
    step = tfplace.trace(tf.function(train_step))
elif how == "below":
    step = tf.function(tfplace.trace("trace.pb")(train_step))
else:
    step = tf.function(train_step)
data = tf.data.Dataset.from_tensor_slices(tf.random.stateless_normal([80, 64], [1, 2])).batch(8).repeat()
losses = []
for x in strategy.experimental_distribute_dataset(data.take(STEPS)):
    if how == "capture-first" and not losses:
        with sys.modules["tfplace"].capture("trace.pb"):
            losses.append(step(x))
    else:
        losses.append(step(x))
copies = [copy for weight in (weights, bias) for copy in strategy.experimental_local_results(weight)]
say(losses, [copy.numpy() for copy in copies])
