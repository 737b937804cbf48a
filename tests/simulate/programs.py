"""Small TensorFlow programs, each run in a process of its own: `python programs.py NAME`.

With SIMULATE=GPUS,MEMORY in the environment the program runs on simulated GPUs, else on the CPU. Prints one line of
JSON: what the program returned.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

STEPS = 20


def start():
    import tensorflow as tf

    if os.environ.get("SIMULATE"):
        from tfplace import simulate

        gpus, memory = os.environ["SIMULATE"].split(",")
        simulate.start(int(gpus), memory)
    return tf


def copy_rows(step_stats):
    """Copies in step_stats by direction: count and bytes. Each stands in a stream and in /memcpy; read the latter."""
    rows = {}
    for dev in step_stats.dev_stats:
        if dev.device.endswith("/memcpy"):
            for node in dev.node_stats:
                name, *details = node.timeline_label.split()
                size = int(next(d for d in details if d.startswith("size:"))[5:])
                count, num_bytes = rows.get(name[6:], (0, 0))
                rows[name[6:]] = (count + 1, num_bytes + size)
    return rows


def counted(traced=True):
    from tfplace import simulate

    if not os.environ.get("SIMULATE"):
        return {}
    totals = {}
    for origin in ("tensor", "upload"):
        for direction, total in simulate.copies(traced=traced, origin=origin).items():
            if total.count:
                count, num_bytes = totals.get(direction, (0, 0))
                totals[direction] = (count + total.count, num_bytes + total.num_bytes)
    return totals


def data(tf, *shape, seed=0):
    import numpy as np

    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def kernel_nodes(step_stats):
    return [n.node_name for d in step_stats.dev_stats if d.device.endswith("stream:all") for n in d.node_stats]


def traced_run(tf, session, fetches, feeds):
    v1 = tf.compat.v1
    metadata = v1.RunMetadata()
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
    session.run(fetches, feeds, options=options, run_metadata=metadata)
    return metadata


def v1_session():
    tf = start()
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [32, 64], name="x")
        init = v1.constant_initializer(0.01)
        with tf.device("/cpu:0"):
            w = v1.get_variable("w", [64, 10], initializer=init, use_resource=False)
        b = v1.get_variable("b", [10], initializer=init, use_resource=True)
        v = v1.get_variable("v", [10, 10], initializer=init, use_resource=False)
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.matmul(x, w) + b, v) - 1.0), name="loss")
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        batch = data(tf, 32, 64)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            losses = [float(session.run([loss, train], {x: batch})[0]) for _ in range(STEPS)]
            metadata = traced_run(tf, session, [loss, train], {x: batch})
    sends = sorted(
        {
            (
                node.op,
                node.attr["tensor_name"].s.decode().split("_", 2)[2],
                node.attr["send_device"].s.decode()[-5:],
                node.attr["recv_device"].s.decode()[-5:],
            )
            for graph in metadata.partition_graphs
            for node in graph.node
            if node.op in ("_Send", "_HostSend")
        }
    )
    return {
        "losses": losses,
        "sends": sends,
        "rows": copy_rows(metadata.step_stats),
        "counted": counted(),
        "kernels": kernel_nodes(metadata.step_stats),
        "lanes": sorted(d.device for d in metadata.step_stats.dev_stats),
        "memcpy": [
            (n.node_name, n.timeline_label)
            for d in metadata.step_stats.dev_stats
            if d.device.endswith("/memcpy")
            for n in d.node_stats
        ],
    }


def tf_function():
    tf = start()
    tf.random.set_seed(1)
    w1, w2 = tf.Variable(data(tf, 20, 32) * 0.1), tf.Variable(data(tf, 32, 1) * 0.1)
    optimizer = tf.keras.optimizers.Adam(0.01)
    x, y = tf.constant(data(tf, 64, 20)), tf.constant(data(tf, 64, 1, seed=1))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            hidden = tf.nn.dropout(tf.nn.relu(x @ w1), 0.2, seed=3)
            loss = tf.reduce_mean(tf.square(hidden @ w2 - y))
        optimizer.apply_gradients(zip(tape.gradient(loss, [w1, w2]), [w1, w2], strict=True))
        return loss

    return {"losses": [float(step()) for _ in range(STEPS)], "device": w1.device}


def _fit(tf, model, x, y, loss, **compile_options):
    losses = []

    class Keep(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            losses.append(float(logs["loss"]))

    model.compile(tf.keras.optimizers.SGD(0.02, 0.9), loss=loss, **{"jit_compile": False, **compile_options})
    model.fit(x, y, batch_size=16, epochs=STEPS // 4, verbose=0, shuffle=False, callbacks=[Keep()])
    return {"losses": losses, "device": model.trainable_variables[0].value.device}


def keras_conv():
    tf = start()
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input((16, 16, 3)),
            layers.Conv2D(8, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Dropout(0.3),
            layers.Flatten(),
            layers.Dense(4),
        ]
    )
    y = (data(tf, 64, seed=2) > 0).astype("int32")
    return _fit(tf, model, data(tf, 64, 16, 16, 3), y, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def attention():
    tf = start()
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    inputs = tf.keras.Input((12, 16))
    hidden = layers.LayerNormalization()(inputs + layers.MultiHeadAttention(2, 8)(inputs, inputs))
    outputs = layers.Dense(1)(layers.GlobalAveragePooling1D()(layers.Dense(16, activation="gelu")(hidden)))
    model = tf.keras.Model(inputs, outputs)
    return _fit(tf, model, data(tf, 64, 12, 16), data(tf, 64, 1, seed=1), "mse")


def _recurrent(use_cudnn):
    tf = start()
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    options = {} if use_cudnn else {"use_cudnn": False}
    model = tf.keras.Sequential([tf.keras.Input((10, 8)), layers.LSTM(12, **options), layers.Dense(1)])
    return _fit(tf, model, data(tf, 64, 10, 8), data(tf, 64, 1, seed=1), "mse")


def lstm():
    return _recurrent(use_cudnn=False)


def lstm_cudnn():
    try:
        return _recurrent(use_cudnn=True)
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}


def control_flow():
    tf = start()
    w = tf.Variable(data(tf, 8, 8) * 0.3)
    x = tf.constant(data(tf, 16, 8))

    @tf.function
    def step(rate):
        with tf.GradientTape() as tape:
            state, states = x, tf.TensorArray(tf.float32, 5)
            for i in tf.range(5):
                state = tf.tanh(state @ w) if tf.reduce_sum(state) > 0.0 else tf.sin(state @ w)
                states = states.write(i, state)
            loss = tf.reduce_mean(tf.square(states.stack() - 0.5))
        w.assign_sub(rate * tape.gradient(loss, w))
        return loss

    return {"losses": [float(step(tf.constant(0.1))) for _ in range(STEPS)]}


def v1_control_flow():
    """While and TensorArray of version 1, not lowered from functions."""
    tf = start()
    v1 = tf.compat.v1
    v1.disable_control_flow_v2()
    with tf.Graph().as_default():
        w = v1.get_variable("w", [8, 8], initializer=v1.constant_initializer(0.1), use_resource=False)
        array = tf.TensorArray(tf.float32, 4)
        x = tf.constant(data(tf, 16, 8))
        _, last, array = v1.while_loop(
            lambda i, *_: i < 4,
            lambda i, s, a: (i + 1, tf.tanh(s @ w), a.write(i, s)),
            (tf.constant(0), x, array),
            swap_memory=True,
        )
        loss = tf.reduce_mean(tf.square(array.stack() - 0.5)) + v1.cond(
            tf.reduce_sum(last) > 0, lambda: tf.reduce_mean(last), lambda: -tf.reduce_mean(last)
        )
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            losses = [float(session.run([loss, train])[0]) for _ in range(STEPS)]
            metadata = traced_run(tf, session, [loss, train], {})
    return {"losses": losses, "rows": copy_rows(metadata.step_stats), "counted": counted()}


def dataset_in_function():
    tf = start()
    w = tf.Variable(data(tf, 8, 1))
    x, y = data(tf, 80, 8), data(tf, 80, 1, seed=1)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).map(lambda a, b: (a * 2.0, b)).batch(4)

    @tf.function
    def epoch(batches):
        losses = tf.TensorArray(tf.float32, STEPS)
        for i, (a, b) in batches.enumerate():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(a @ w - b))
            w.assign_sub(0.01 * tape.gradient(loss, w))
            losses = losses.write(tf.cast(i, tf.int32), loss)
        return losses.stack()

    return {"losses": epoch(dataset).numpy().tolist()}


def prefetch_to_device():
    tf = start()
    device = "/gpu:0" if os.environ.get("SIMULATE") else "/cpu:0"
    w = tf.Variable(data(tf, 8, 1))
    dataset = tf.data.Dataset.from_tensor_slices(data(tf, 80, 8)).batch(4)
    dataset = dataset.apply(tf.data.experimental.prefetch_to_device(device))

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(batch @ w - 1.0))
        w.assign_sub(0.01 * tape.gradient(loss, w))
        return loss

    devices, losses = set(), []
    for batch in dataset:
        devices.add(batch.device[-5:])
        losses.append(float(step(batch)))
    return {"losses": losses, "devices": sorted(devices)}


def py_function():
    tf = start()
    w = tf.Variable(data(tf, 8, 8) * 0.3)
    x = tf.constant(data(tf, 16, 8))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            middle = tf.py_function(lambda t: tf.nn.softplus(t) * 2.0, [x @ w], tf.float32)
            scale = tf.numpy_function(lambda t: t.mean(), [middle], tf.float32)
            loss = tf.reduce_mean(tf.square(middle)) + 0.0 * scale
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    return {"losses": [float(step()) for _ in range(STEPS)]}


def strings_and_tables():
    tf = start()
    keys = tf.constant(["a", "b", "c"])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.constant([3, 1, 2])), -1)
    mutable = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 0.0)
    embedding = tf.Variable(data(tf, 8, 4))

    @tf.function
    def step(words):
        ids = table.lookup(tf.strings.lower(words))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.gather(embedding, ids) - 1.0))
        gradient = tape.gradient(loss, embedding)
        embedding.scatter_sub(tf.IndexedSlices(gradient.values * 0.1, gradient.indices))
        mutable.insert(words, tf.fill(tf.shape(words), loss))
        return loss, tf.strings.join([words, "!"])

    losses = []
    for _ in range(STEPS):
        loss, joined = step(tf.constant(["A", "b", "C"]))
        losses.append(float(loss))
    found = [v.decode() for v in joined.numpy()]
    return {"losses": losses, "joined": found, "kept": mutable.lookup(tf.constant(["b"])).numpy().tolist()}


def checkpoint():
    tf = start()
    w = tf.Variable(data(tf, 8, 8))
    optimizer = tf.keras.optimizers.Adam(0.05)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(w))
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])
        return loss

    losses = [float(step()) for _ in range(STEPS // 2)]
    with tempfile.TemporaryDirectory() as folder:
        saved = tf.train.Checkpoint(w=w, optimizer=optimizer)
        path = saved.save(os.path.join(folder, "c"))
        kept = w.numpy()
        w.assign(tf.zeros_like(w))
        saved.restore(path).assert_consumed()
        same = bool((w.numpy() == kept).all())
    losses += [float(step()) for _ in range(STEPS // 2)]
    return {"losses": losses, "same": same, "device": w.device}


def mixed_precision():
    tf = start()
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(1, dtype="float32"),
        ]
    )
    return _fit(tf, model, data(tf, 64, 8, 8, 3), data(tf, 64, 1, seed=1), "mse")


def _mirrored(cross_device_ops):
    """With no cross-device ops given the replicas reduce by NCCL, else the strategy copies and adds."""
    tf = start()
    gpus = len(tf.config.list_physical_devices("GPU"))
    devices = [f"/gpu:{i}" for i in range(gpus)] or ["/cpu:0"]
    ops = cross_device_ops(tf)
    strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=ops)
    with strategy.scope():
        w = tf.Variable(data(tf, 8, 1))
    x, y = data(tf, 16, 8), data(tf, 16, 1, seed=1)

    def update(strategy, gradient):
        total = strategy.extended.reduce_to(tf.distribute.ReduceOp.SUM, gradient, w)
        strategy.extended.update(w, lambda v, g: v.assign_sub(0.1 * g), args=(total,))

    def replica(a, b):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(tf.matmul(a, w) - b)) / 16.0
        gradient = tape.gradient(loss, w)
        context = tf.distribute.get_replica_context()
        if ops is None:
            w.assign_sub(0.1 * context.all_reduce(tf.distribute.ReduceOp.SUM, gradient))
        else:
            context.merge_call(update, args=(gradient,))
        return loss

    @tf.function
    def step(a, b):
        return strategy.reduce("SUM", strategy.run(replica, (a, b)), None)

    def parts(values):
        size = len(values) // len(devices)
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(values[context.replica_id_in_sync_group * size :][:size])
        )

    a, b = parts(x), parts(y)
    return {
        "losses": [float(step(a, b)) for _ in range(STEPS)],
        "devices": sorted(v.device[-5:] for v in strategy.experimental_local_results(w)),
        "counted": counted(traced=False),
    }


def mirrored_hierarchical():
    return _mirrored(lambda tf: tf.distribute.HierarchicalCopyAllReduce())


def mirrored_one_device():
    return _mirrored(lambda tf: tf.distribute.ReductionToOneDevice())


def mirrored_default():
    return _mirrored(lambda tf: None)


def placement():
    tf = start()
    v1 = tf.compat.v1
    result = {}
    with tf.Graph().as_default(), tf.device("/gpu:0"):
        counter = v1.get_variable("counter", [], tf.int32, v1.zeros_initializer(), use_resource=False)
        joined = tf.strings.join(["a", "b"], name="joined")
        add = v1.assign_add(counter, 1)
        with v1.Session(config=v1.ConfigProto(allow_soft_placement=True)) as session:
            session.run(counter.initializer)
            metadata = traced_run(tf, session, [add, joined], {})
            result["soft"] = {n.name: n.device[-5:] for g in metadata.partition_graphs for n in g.node}
    # a graph of its own: the placer looks at all of a graph, and the int32 variable above is refused as well
    with tf.Graph().as_default(), tf.device("/gpu:0"), v1.Session() as session:
        joined = tf.strings.join(["a", "b"], name="joined")
        try:
            session.run(joined)
        except Exception as error:
            result["hard"] = [type(error).__name__, str(error)]
    return result


def out_of_memory():
    tf = start()
    kept = [tf.fill([16, 1024, 1024], 1.0)]
    try:
        while True:
            kept.append(tf.square(kept[0]))
    except tf.errors.ResourceExhaustedError as error:
        message = str(error)
    limit = tf.config.experimental.get_memory_info("GPU:0")
    return {"tensors": len(kept), "message": message, "current": limit["current"], "peak": limit["peak"]}


def jit_compile():
    tf = start()
    w = tf.Variable(data(tf, 8, 8) * 0.3)
    x = tf.constant(data(tf, 16, 8))

    @tf.function(jit_compile=True)
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(x @ w) - 0.5))
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    return {"losses": [float(step()) for _ in range(STEPS)]}


def first_run():
    """Constants go up when kernels are built: before the step, which is the first of its session."""
    tf = start()
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [256, 256])
        y = tf.matmul(x, tf.constant(data(tf, 256, 256)))  # 262144 bytes
        with v1.Session() as session:
            metadata = traced_run(tf, session, y, {x: data(tf, 256, 256)})
    from tfplace import simulate

    uploads = [simulate.copies(traced=traced, origin="upload")["H2D"] for traced in (False, True)]
    return {
        "rows": copy_rows(metadata.step_stats),
        "uploads": [[total.count, total.num_bytes] for total in uploads],
        "counted": counted(),
    }


def xla_clusters():
    tf = start()
    tf.config.optimizer.set_jit(True)
    w = tf.Variable(data(tf, 8, 8))

    @tf.function
    def step():
        return tf.reduce_sum(tf.tanh(w @ w) * tf.sin(w) + tf.cos(w))

    try:
        return {"value": float(step())}
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}


def keras_defaults():
    """fit with nothing said about XLA, which Keras then turns on."""
    tf = start()
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(4, "relu"), tf.keras.layers.Dense(1)])
    result = _fit(tf, model, data(tf, 64, 8), data(tf, 64, 1, seed=1), "mse", jit_compile="auto")
    return {**result, "jit": model.jit_compile}


def channels_first():
    tf = start()
    try:
        with tf.device("/gpu:0"):
            tf.nn.conv2d(tf.ones([1, 3, 8, 8]), tf.ones([3, 3, 3, 4]), 1, "SAME", data_format="NCHW")
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}


def virtual_devices():
    tf = start()
    gpu = tf.config.list_physical_devices("GPU")[0]
    config = tf.config.LogicalDeviceConfiguration
    tf.config.set_logical_device_configuration(gpu, [config(memory_limit=64), config(memory_limit=128)])
    with tf.device("/gpu:1"):
        total = tf.reduce_sum(tf.ones([4]))
    with tf.device("/gpu:0"):
        total = total + 1.0
    return {
        "devices": [d.name for d in tf.config.list_logical_devices("GPU")],
        "total": float(total),
        "device": total.device[-5:],
        "details": tf.config.experimental.get_device_details(gpu),
        "counted": counted(traced=False),
    }


def fewer_devices():
    """device_count and visible_device_list choose among the GPUs, virtual ones included."""
    tf = start()
    v1 = tf.compat.v1

    def names(**gpu_options):
        config = v1.ConfigProto(device_count={"GPU": gpu_options.pop("count", 8)}, gpu_options=gpu_options)
        with v1.Session(graph=tf.Graph(), config=config) as session:
            return [d.name[-5:] for d in session.list_devices() if d.device_type == "GPU"]

    virtual = v1.GPUOptions.Experimental.VirtualDevices
    split = v1.GPUOptions.Experimental(
        virtual_devices=[virtual(memory_limit_mb=[64, 64]), virtual(memory_limit_mb=[64])]
    )
    try:
        names(visible_device_list="0,7")
        refused = ""
    except Exception as error:
        refused = str(error)
    return {
        "all": names(),
        "none": names(count=0),
        "one": names(count=1),
        "visible": names(visible_device_list="1"),
        "virtual": names(experimental=split),
        "one_virtual": names(experimental=split, count=1),
        "refused": refused,
    }


def profile():
    """The XPlanes of the TensorFlow 2 profiler."""
    tf = start()
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    w = tf.Variable(data(tf, 8, 8))

    @tf.function
    def step(x):
        with tf.device("/cpu:0"):
            host = tf.raw_ops.Cumsum(x=x, axis=0)
        return tf.reduce_sum(host @ w)

    x = tf.constant(data(tf, 16, 8))
    step(x)
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        step(x).numpy()
        tf.profiler.experimental.stop()
        path = next(os.path.join(r, f) for r, _, fs in os.walk(folder) for f in fs if f.endswith(".xplane.pb"))
        with open(path, "rb") as file:
            space = xplane_pb2.XSpace.FromString(file.read())
    rows = []
    for plane in space.planes:
        if plane.name != "/device:GPU:0":
            continue
        names = {key: value.name for key, value in plane.stat_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                stats = {
                    names[s.metadata_id]: s.str_value or names.get(s.ref_value) or s.int64_value for s in event.stats
                }
                rows.append([line.name, plane.event_metadata[event.metadata_id].name, stats])
    return {"rows": rows, "counted": counted()}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
