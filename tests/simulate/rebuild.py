"""Rebuilds the program of a recorded RunMetadata from its partition graphs, runs it on simulated GPUs, compares.

`python rebuild.py FILE` prints one line of JSON: the recorded and the simulated step, each as edges, copies and op
counts. Matrices are smaller by SCALE on each side; everything else is as recorded.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter

SCALE = 16
# Ops that have a GPU kernel today and had none when the file was recorded. The stand-in computes the same and still
# takes its arguments in host memory.
STAND_INS = {"DynamicStitch": "ParallelDynamicStitch"}
COPY = re.compile(r"(?:MEMCPY|::Memcpy)(H|D|P)to(D|H|P)$", re.I)
SENDS, RECVS = ("_Send", "_HostSend"), ("_Recv", "_HostRecv")


def read(path, tf):
    from google.protobuf import json_format, text_format

    with open(path, encoding="utf-8") as file:
        text = file.read()
    metadata = tf.compat.v1.RunMetadata()
    if not path.endswith(".json"):
        return text_format.Parse(text, metadata, allow_unknown_field=True)
    content = json.loads(text)
    content = json.loads(content) if isinstance(content, str) else content
    return json_format.ParseDict(content, metadata, ignore_unknown_fields=True)


def device(name):
    """CPU:0 or GPU:1, of a device name of any age."""
    kind, ordinal = re.search(r"(cpu|gpu):(\d+)$", name, re.I).groups()
    return f"{kind.upper()}:{ordinal}"


def key(node):
    """What pairs a send with its recv."""
    attr = node.attr
    return tuple(attr[name].s.decode() for name in ("tensor_name", "send_device", "recv_device"))


def is_client(node):
    """A feed or fetch of versions before 1.5: a send or recv whose other end is the client."""
    return node.name.startswith(("_send_", "_recv_"))


def nodes_of(metadata):
    return [node for graph in metadata.partition_graphs for node in graph.node]


def summary(metadata, scaled):
    """Edges, copies and op counts of a step. `scaled` turns recorded bytes into those of the smaller matrices."""
    nodes = nodes_of(metadata)
    by_name = {node.name: node for node in nodes}
    recv_of = {key(node): node for node in nodes if node.op in RECVS and not is_client(node)}
    edges, edge_of = [], {}
    for node in nodes:
        if node.op not in SENDS or is_client(node):
            continue
        source = by_name[node.input[0].split(":")[0]]
        control = source.op == "Const" and bool(source.input)  # An empty constant behind ^X stands for X's completion.
        producer = source.input[0].lstrip("^") if control else node.input[0]
        recv = recv_of[key(node)]
        ends = [device(node.device), device(recv.device)]
        edges.append([producer, *ends, "control" if control else "data", node.op, recv.op])
        for name in (node.name, recv.name, key(node)[0]):
            edge_of[name] = producer
    ops = Counter(f"{device(node.device)} {STAND_INS.get(node.op, node.op)}" for node in nodes)
    return {"edges": sorted(edges), "ops": dict(sorted(ops.items())), "copies": copies(metadata, edge_of, scaled)}


def copies(metadata, edge_of, scaled):
    """Rows (producer, GPU that the copy is booked on, direction, bytes), from the step_stats of any version."""
    rows = []
    for dev in metadata.step_stats.dev_stats:
        found = re.match(r"/(?:device:)?gpu:(\d+)(.*)", dev.device, re.I)
        if not found or not re.search(r"/memcpy$|Memcpy.to.$", dev.device):
            continue
        for node in dev.node_stats:
            new = re.match(r"Memcpy(\w+) .*size:(\d+)", node.timeline_label)
            if new:
                direction, size, name = new[1], int(new[2]), node.node_name.rsplit(":", 1)[0]
            else:
                direction = "2".join(COPY.search(node.node_name).groups()).upper()
                size = int(re.search(r"(\d+) bytes", node.timeline_label)[1])
                name = re.search(r"(edge_\d+_.+?):+mem", node.node_name, re.I)[1]
            direction = "D2D" if direction in ("P2P", "D2D") else direction  # Both names are in use between GPUs.
            rows.append([edge_of[name], f"GPU:{found[1]}", direction, scaled(size)])
    return sorted(rows)


def rebuild(metadata, tf):
    """The GraphDef that was partitioned, its feeds (name to bytes of the recorded value) and its fetches."""
    nodes = nodes_of(metadata)
    sent = {key(node): node.input[0] for node in nodes if node.op in SENDS}
    value_of = {node.name: sent[key(node)] for node in nodes if node.op in RECVS and not is_client(node)}
    graph = tf.compat.v1.GraphDef()
    graph.versions.CopyFrom(metadata.partition_graphs[0].versions)
    # Name of a placeholder from its argument node: _arg_Placeholder_3_0_11 is output 0 of Placeholder_3, the 12th.
    placeholder = {n.name: re.match(r"_arg_(.+)_\d+_\d+$", n.name)[1] for n in nodes if n.op == "_Arg"}
    fetches = {}
    for node in nodes:
        if node.op in (*SENDS, *RECVS) and not is_client(node):
            continue
        inputs = [value_of.get(name, name) for name in node.input]
        inputs = [placeholder.get(name, name) for name in inputs]
        if node.op == "_Retval" or is_client(node):
            order = node.attr["index"].i if node.op == "_Retval" else len(fetches)
            fetches[order] = inputs[0] if ":" in inputs[0] else f"{inputs[0]}:0"
            continue
        copy = graph.node.add()
        copy.CopyFrom(node)
        del copy.input[:]
        copy.input.extend(inputs)
        copy.op = STAND_INS.get(node.op, node.op)
        copy.device = f"/device:{device(node.device)}"
        if node.op == "_Arg":
            copy.name, copy.op, copy.device = placeholder[node.name], "Placeholder", ""
            dtype = node.attr["T"]
            copy.attr.clear()
            copy.attr["dtype"].CopyFrom(dtype)
    return graph, sorted(placeholder.values()), [fetches[i] for i in sorted(fetches)]


def shrink(num_bytes):
    """Bytes of the smaller matrix; vectors stay as they are."""
    side = math.isqrt(num_bytes // 4)
    return 4 * max(1, side // SCALE) ** 2 if side * side * 4 == num_bytes and num_bytes > 400 else num_bytes


def run(path, gpus):
    import numpy as np
    import tensorflow as tf

    from tfplace import simulate

    simulate.start(gpus, "4GB")
    v1 = tf.compat.v1
    recorded_metadata = read(path, tf)
    recorded = summary(recorded_metadata, shrink)
    graph_def, placeholders, fetches = rebuild(recorded_metadata, tf)
    size_of = {row[0]: row[3] for row in recorded["copies"] if row[2] == "H2D"}
    feeds = {}
    for name in placeholders:
        argument = next(n for n in size_of if n.startswith(f"_arg_{name}_") and n[len(name) + 6 :].count("_") == 1)
        side = math.isqrt(size_of[argument] // 4)
        feeds[f"{name}:0"] = np.ones((side, side), "float32")
    config = v1.ConfigProto(allow_soft_placement=False)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    metadata = v1.RunMetadata()
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        with v1.Session(graph=graph, config=config) as session:
            session.run(fetches, feeds)  # Constants go up at the first run, outside the recorded step too.
            session.run(fetches, feeds, options=options, run_metadata=metadata)
    counted = {name: [t.count, t.num_bytes] for name, t in simulate.copies(traced=True).items() if t.count}
    return {"recorded": recorded, "simulated": summary(metadata, int), "counted": counted}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]))))
