"""Small programs of many kinds, each with data that crosses between host and device. Usage: zoo.py NAME"""

import sys

import numpy as np
import tensorflow as tf
from common import DEVICE, HOST, two_devices

two_devices()
tf.keras.utils.set_random_seed(1)
from tfplace.capture.decorator import trace  # noqa: E402

layers = tf.keras.layers
X = tf.random.stateless_normal([8, 16], [1, 2])
ZOO = {}


def program(function):
    ZOO[function.__name__] = function
    return function


def run(step, *arguments, count=6):
    for _ in range(count):
        step(*arguments)


def descend(variables, gradients):
    for variable, gradient in zip(variables, gradients, strict=True):
        if gradient is not None:
            variable.assign_sub(0.01 * tf.convert_to_tensor(gradient))


@program
def mlp():
    with tf.device(HOST):
        weights = [tf.Variable(tf.random.normal([16, 16]), name=f"w{number}") for number in range(4)]

    @trace
    @tf.function
    def step(x):
        with tf.device(DEVICE):
            with tf.GradientTape() as tape:
                h = x
                for weight in weights:
                    h = tf.nn.relu(tf.matmul(h, weight))
                loss = tf.reduce_mean(h)
            descend(weights, tape.gradient(loss, weights))
        return loss

    run(step, X)


@program
def embedding():
    with tf.device(HOST):
        table = tf.Variable(tf.random.normal([1000, 16]), name="table")
        words = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(["a", "b", "c"], tf.constant([1, 2, 3], tf.int64)), 0
        )
        dense = tf.Variable(tf.random.normal([16, 4]), name="dense")

    @trace
    @tf.function
    def step(tokens):
        rows = tf.gather(table, words.lookup(tokens))
        with tf.device(DEVICE):
            return tf.reduce_sum(tf.matmul(rows, dense))

    run(step, tf.constant(["a", "c", "b", "x"]))


@program
def keras_lstm():
    with tf.device(HOST):
        model = tf.keras.Sequential([tf.keras.Input([5, 16]), layers.LSTM(8, use_cudnn=False), layers.Dense(2)])
        optimizer = tf.keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)

    @trace
    @tf.function
    def step(x):
        with tf.device(DEVICE):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x, training=True) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    run(step, tf.reshape(tf.tile(X, [1, 5]), [8, 5, 16]))


@program
def attention():
    with tf.device(HOST):
        layer = layers.MultiHeadAttention(2, 8)
        layer.build([8, 4, 16], [8, 4, 16])
    data = tf.reshape(tf.tile(X, [1, 4]), [8, 4, 16])

    @trace
    @tf.function
    def step(x):
        with tf.device(DEVICE):
            return tf.reduce_mean(layer(x, x))

    run(step, data)


@program
def control_flow():
    with tf.device(HOST):
        weight = tf.Variable(tf.eye(16), name="weight")

    @trace
    @tf.function
    def step(x, n):
        with tf.device(DEVICE):
            array = tf.TensorArray(tf.float32, size=3)
            for i in tf.range(n):
                x = tf.matmul(x, weight)
                array = array.write(i, tf.reduce_mean(x))
            if tf.reduce_sum(x) > 0.0:  # noqa: SIM108 (autograph makes a cond of it)
                x = x * 2.0
            else:
                x = x - 1.0
        return tf.reduce_sum(array.stack()) + tf.reduce_sum(x)

    run(step, X, tf.constant(3))


@program
def dataset_inside():
    with tf.device(HOST):
        weight = tf.Variable(tf.random.normal([16, 2]), name="weight")
        iterator = iter(tf.data.Dataset.from_tensors(X).repeat())

    @trace
    @tf.function
    def step(iterator):
        x = next(iterator)
        with tf.device(DEVICE):
            return tf.reduce_mean(tf.matmul(x, weight))

    run(step, iterator)


@program
def gan():
    with tf.device(HOST):
        g = tf.Variable(tf.random.normal([16, 16]), name="generator")
        d = tf.Variable(tf.random.normal([16, 1]), name="discriminator")

    @tf.function
    def train_generator(x):
        with tf.device(DEVICE):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.matmul(tf.matmul(x, g), d))
            descend([g], tape.gradient(loss, [g]))
        return loss

    @tf.function
    def train_discriminator(x):
        with tf.device(DEVICE):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.matmul(x, d)) - tf.reduce_mean(tf.matmul(tf.matmul(x, g), d))
            descend([d], tape.gradient(loss, [d]))
        return loss

    @trace
    def step(x):
        return train_discriminator(x) + train_generator(x)

    run(step, X)


@program
def outer_tape():
    with tf.device(HOST):
        weight = tf.Variable(tf.random.normal([16, 8]), name="weight")

    @tf.function
    def inner(h):
        return tf.nn.relu(h) + 0.1

    @tf.function
    def forward(x):
        with tf.device(DEVICE):
            return tf.reduce_mean(inner(tf.matmul(x, weight)))

    @trace
    def step(x):
        with tf.GradientTape() as tape:
            loss = forward(x)
        descend([weight], tape.gradient(loss, [weight]))
        return loss

    run(step, X)


@program
def modules():
    class Linear(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable(tf.random.normal([16, 16]), name="w")
            self.b = tf.Variable(tf.zeros([16]), name="b")

        def __call__(self, x):
            return tf.matmul(x, self.w) + self.b

    with tf.device(HOST):
        parts = [Linear(), Linear(), Linear()]

    @trace
    @tf.function
    def step(x):
        with tf.device(DEVICE):
            for part in parts:
                x = part(x)
            return tf.reduce_mean(x)

    run(step, X)


@program
def python_op():
    with tf.device(HOST):
        weight = tf.Variable(tf.random.normal([16, 4]), name="weight")

    @trace
    @tf.function
    def step(x):
        with tf.device(DEVICE):
            h = tf.matmul(x, weight)
        doubled = tf.numpy_function(lambda value: value * np.float32(2), [h], tf.float32)
        doubled.set_shape(h.shape)
        with tf.device(DEVICE):
            return tf.reduce_sum(doubled)

    run(step, X)


@program
def ragged():
    with tf.device(HOST):
        weight = tf.Variable(tf.random.normal([4]), name="weight")

    @trace
    @tf.function
    def step(values):
        with tf.device(DEVICE):
            return tf.reduce_sum(tf.reduce_sum(values, axis=1) * weight)

    run(step, tf.ragged.constant([[1.0], [2.0, 3.0], [], [4.0, 5.0, 6.0]]))


@program
def saved_model():
    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.kernel = tf.Variable(tf.random.normal([16, 4]), name="kernel")

        @tf.function(input_signature=[tf.TensorSpec([None, 16], tf.float32)])
        def infer(self, x):
            return tf.matmul(x, self.kernel)

    with tf.device(HOST):
        tf.saved_model.save(Net(), "saved")
        net = tf.saved_model.load("saved")

    @trace
    @tf.function
    def step(x):
        y = net.infer(x)
        with tf.device(DEVICE):
            return tf.reduce_sum(y * 2.0)

    run(step, X)


@program
def unknown_batch():
    with tf.device(HOST):
        weight = tf.Variable(tf.random.normal([16, 4]), name="weight")

    @trace
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32)])
    def step(x):
        with tf.device(DEVICE):
            return tf.reduce_sum(tf.matmul(x, weight), axis=0)

    run(step, X)


@program
def convnet():
    with tf.device(HOST):
        model = tf.keras.Sequential(
            [
                tf.keras.Input([12, 12, 3]),
                layers.Conv2D(8, 3, padding="same"),
                layers.BatchNormalization(),
                layers.ReLU(),
                layers.Dropout(0.3),
                layers.GlobalAveragePooling2D(),
                layers.Dense(3),
            ]
        )
        optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(model.trainable_variables)

    @trace
    @tf.function
    def step(x):
        with tf.device(DEVICE):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(x, training=True) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    run(step, tf.random.stateless_normal([4, 12, 12, 3], [1, 2]))


if __name__ == "__main__":
    ZOO[sys.argv[1]]()
