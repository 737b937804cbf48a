"""A hand-made Analysis whose every number in a report can be worked out on paper.

Two steps of 100 us on CPU:0 and GPU:0. In each: the weight w (4,000 bytes) goes up, its gradient comes back, the fed
images (1,200 bytes, pageable) go up. In the first step alone an op copies 8 bytes down twice and 16 bytes once, inside
its kernel. The learning rate has a Send / Recv pair and no copy; one pair is a control edge.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from tfplace.analyze.analysis import Analysis
from tfplace.analyze.dataflow import Dataflow
from tfplace.analyze.kernels import KernelRegistry
from tfplace.diagnose.rule import Finding, Outcome
from tfplace.model import schema
from tfplace.model.trace import Note, Trace

CPU, GPU = 0, 1
W, READ, IMAGES, CONV, GRAD, APPLY, LR, STITCH, ITERATOR = range(9)

_NODES = [
    ("train/w", "VariableV2", CPU),
    ("train/w/read", "Identity", CPU),
    ("_arg_images_0_0", "_Arg", CPU),
    ("train/conv", "Conv2D", GPU),
    ("train/grad", "Conv2DBackpropFilter", GPU),
    ("train/apply", "ApplyGradientDescent", CPU),
    ("train/lr", "Const", CPU),
    ("eval/stitch", "DynamicStitch", GPU),
    ("next", "IteratorGetNext", CPU),
]


def devices(kind: str = "GPU", role: str = "device", model: str | None = "Tesla P100") -> pd.DataFrame:
    return schema.conform(
        "devices",
        pd.DataFrame(
            {
                "device_id": [CPU, GPU],
                "name": ["CPU:0", f"{kind}:{1 if kind == 'CPU' else 0}"],
                "kind": ["CPU", kind],
                "role": ["host", role],
                "model": [None, model],
            }
        ),
    )


def nodes(names: dict[int, str] | None = None) -> pd.DataFrame:
    frame = pd.DataFrame(_NODES, columns=["name", "op", "device_id"])
    frame["name"] = [(names or {}).get(node, name) for node, name in enumerate(frame["name"])]
    return schema.conform("nodes", frame.assign(node_id=range(len(frame)), graph="partition:0"))


def steps() -> pd.DataFrame:
    return schema.conform(
        "steps",
        pd.DataFrame(
            {
                "step_id": [0, 1],
                "start_ns": [0, 200_000],
                "end_ns": [100_000, 300_000],
                "boundary": ["file", "file"],
            }
        ),
    )


def events() -> pd.DataFrame:
    """A kernel of 40 us and an input op of 35 us after it in the first step; the same kernel in the second."""
    rows = [
        (0, GPU, "kernel", "conv", "Conv2D", 20_000, 60_000),
        (0, CPU, "op", "next", "IteratorGetNext", 50_000, 95_000),
        (1, GPU, "kernel", "conv", "Conv2D", 220_000, 260_000),
    ]
    frame = pd.DataFrame(rows, columns=["step_id", "device_id", "kind", "name", "op", "start_ns", "end_ns"])
    return schema.conform("events", frame.assign(event_id=range(len(frame))))


def _copy(step: int, tensor: str, edge: str | None, way: str, size: int | None, start: int, length: int, **more: Any):
    return {
        "step_id": step,
        "tensor_name": tensor,
        "edge_name": edge,
        "direction": way,
        "src_device_id": CPU if way == "H2D" else GPU,
        "dst_device_id": GPU if way == "H2D" else CPU,
        "num_bytes": size,
        "start_ns": start,
        "end_ns": start + length,
        "exposed_ns": length // 2,
        "consumer_node_ids": (),
        "rows_only": False,
        "evidence": "both" if edge else "memcpy",
        "join": "name" if edge else "none",
        "category": "unknown",
        **more,
    }


def transfers() -> pd.DataFrame:
    weight = {"category": "variable", "variable_id": 0, "producer_node_id": READ, "consumer_node_ids": (CONV,)}
    grad = {"category": "gradient", "producer_node_id": GRAD, "consumer_node_ids": (APPLY,)}
    feed = {"category": "input", "producer_node_id": IMAGES, "consumer_node_ids": (CONV, GRAD)}
    feed["src_memory"] = "pageable"
    unseen = {"start_ns": None, "end_ns": None, "exposed_ns": None, "evidence": "send_recv", "join": "none"}
    rate = {**unseen, "category": "constant", "producer_node_id": LR, "consumer_node_ids": (CONV,)}
    rows = [
        _copy(0, "train/w/read:0", "edge_1_train/w/read", "H2D", 4000, 10_000, 1000, **weight),
        _copy(1, "train/w/read:0", "edge_1_train/w/read", "H2D", 4000, 212_000, 3000, **weight),
        _copy(0, "train/grad:0", "edge_2_train/grad", "D2H", 4000, 70_000, 1000, **grad),
        _copy(1, "train/grad:0", "edge_2_train/grad", "D2H", 4000, 270_000, 1000, **grad),
        _copy(0, "_arg_images_0_0:0", "edge_3__arg_images_0_0", "H2D", 1200, 2_000, 500, **feed),
        _copy(1, "_arg_images_0_0:0", "edge_3__arg_images_0_0", "H2D", 1200, 203_000, 500, **feed),
        _copy(0, "eval/stitch", None, "D2H", 8, 80_000, 100, producer_node_id=STITCH),
        _copy(0, "eval/stitch", None, "D2H", 8, 81_000, 100, producer_node_id=STITCH),
        _copy(0, "eval/stitch", None, "D2H", 16, 82_000, 100, producer_node_id=STITCH),
        _copy(0, "train/lr:0", "edge_4_train/lr", "H2D", 4, 0, 0, **rate),
        _copy(1, "train/lr:0", "edge_4_train/lr", "H2D", 4, 0, 0, **rate),
        _copy(0, "done", "edge_5_done", "H2D", 0, 0, 0, **{**unseen, "category": "control"}),
    ]
    return schema.conform("transfers", pd.DataFrame(rows).assign(transfer_id=range(len(rows))))


def variables(**changes: Any) -> pd.DataFrame:
    row: dict[str, Any] = {
        "variable_id": 0,
        "node_id": W,
        "name": "train/w",
        "named": True,
        "kind": "ref",
        "device_id": CPU,
        "requested_device": "/device:CPU:0",
        "dtype": "float32",
        "shape": "[10,100]",
        "num_bytes": 4000,
        "has_gpu_kernel": True,
        "readers": (READ,),
        "writers": (APPLY,),
        "destinations": (GPU,),
        "destination_bytes": (4000,),
        "read_bytes_per_step": 4000,
        "written_bytes_per_step": 4000,
        "copied_each_step": True,
        "rows_only": False,
        "verdict": "unnecessary",
        "reason": "all its ops have GPU kernels",
        "source": None,
        **changes,
    }
    return schema.conform("variables", pd.DataFrame([row]))


def trace(**changes: Any) -> Trace:
    return replace(
        Trace(
            source=("trace.pbtxt",),
            format="RunMetadata text",
            devices=devices(),
            nodes=nodes(),
            events=events(),
            steps=steps(),
            notes=(Note("copies-without-size", "Copies without a size.", 2),),
            tf_version="1.15.0",
            tf_era="TF1",
            has_graphs=True,
            has_times=True,
            has_device_times=True,
        ),
        **changes,
    )


def analysis(of: Trace | None = None, **changes: Any) -> Analysis:
    of = of or trace()
    placement = of.nodes.groupby(["device_id", "op"], dropna=False).size().rename("nodes").reset_index()
    made = Analysis(
        trace=of,
        flow=Dataflow(of),
        transfers=transfers(),
        variables=variables(),
        reasons=pd.DataFrame(
            {"node_id": [APPLY], "reason": ["user-request"], "detail": ["asked for CPU:0"], "harmless": [True]}
        ),
        placement=placement,
        kernels=KernelRegistry(name="none"),
        step_count=2,
        step_time_ns=100_000.0,
        gpu_busy_share=0.4,
        exposed_copy_ns=3_000.0,
        notes=(Note("unpaired-transfers", "A partition graph is missing.", None),),
    )
    return replace(made, **changes)


def finding(**changes: Any) -> Finding:
    return replace(
        Finding(
            rule="variable-on-cpu",
            severity="warning",
            title="1 variable (4.0 kB) is copied from CPU:0 to GPU:0 in every step",
            detail="All its ops have GPU kernels.",
            fix="Remove tf.device('/cpu:0').",
            evidence=("train/w, 4.0 kB",),
            cost_ns_per_step=333.25,
            cost_basis="estimated",
            bytes_per_step=4000,
            confidence="joined",
            subjects=("train/w",),
        ),
        **changes,
    )


def outcomes(*findings: Finding) -> list[Outcome]:
    found = findings or (finding(),)
    return [
        Outcome("variable-on-cpu", "found", None, found),
        Outcome("table-on-cpu", "clear"),
        Outcome("xla-hides-placement", "skipped", "no graphs"),
        Outcome("ping-pong", "failed", "KeyError: 'x'"),
    ]
