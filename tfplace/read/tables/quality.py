"""What a trace lacks, in one plain sentence each; and which TensorFlow generation its content shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from tfplace.model.trace import Note
from tfplace.names import printable
from tfplace.read.raw import RawTrace
from tfplace.read.tables.graph import NodeRows
from tfplace.read.tables.recorded import compiled_wholes

_REF_VARIABLES = frozenset({"VariableV2", "Variable", "TemporaryVariable"})
# GraphDef versions up to this one were written before any TensorFlow 2 release, previews included
_LAST_TF1_PRODUCER = 26


def count_notes(
    raws: Sequence[RawTrace],
    rows: NodeRows,
    inferred: bool,
    lost_inputs: int,
    copies: pd.DataFrame,
) -> list[Note]:
    """Return the notes on what is missing from the whole trace."""
    notes = []
    # a step that XLA compiled has neither graphs nor timed nodes, and capture notes why: a cure for others misleads
    open_raws = [raw for raw in raws if not compiled_wholes(raw.context)]
    without = [raw for raw in open_raws if not any(g.role in ("partition", "graph") for g in raw.graphs)]
    if without:
        notes.append(
            Note(
                "no-partition-graphs",
                "The trace has no partition graphs: requested devices, colocation and attributes are unknown, and "
                "edges are only what labels tell. Record with output_partition_graphs=True.",
                len(without) if len(raws) > 1 else None,
            )
        )
    if inferred and rows.name:
        notes.append(
            Note(
                "inferred-nodes",
                f"{len(rows.name)} nodes and {len(rows.edges)} edges were read off the labels of step_stats; "
                f"{lost_inputs} inputs lead to no node that was timed.",
                len(rows.name),
            )
        )
    if rows.dangling:
        notes.append(
            Note("dangling-inputs", f"{rows.dangling} inputs name nodes that their graph does not hold.", rows.dangling)
        )
    untimed = [raw for raw in open_raws if raw.step_stats is None or not raw.step_stats.node_name]
    if untimed:
        notes.append(
            Note(
                "no-step-stats",
                "The trace has no step_stats: nothing was timed. Record with trace_level=FULL_TRACE.",
                len(untimed) if len(raws) > 1 else None,
            )
        )
    notes.extend(_copy_notes(copies))
    return notes


def traced_devices(events: pd.DataFrame, copies: pd.DataFrame) -> set[int]:
    """Return the ids of the devices whose kernels or copies were timed; -1 stands for a lane of no known device."""
    own = events["kind"].isin(["kernel", "memcpy", "memset"]).to_numpy(copy=True)
    # a tensor from another worker is booked on the device it goes to, but timed by the host
    own[copies.loc[(copies["direction"] == "H2H").fillna(False), "event_id"].to_numpy(dtype="int64")] = False
    return {int(device) for device in events["device_id"][own].fillna(-1).unique()}


def untraced_notes(traced: set[int], devices: pd.DataFrame, nodes: pd.DataFrame) -> list[Note]:
    """Name the accelerators that hold nodes but on which nothing was timed, in a trace that has times."""
    held = nodes["device_id"].value_counts()
    notes = []
    for device, name, kind in devices[["device_id", "name", "kind"]].itertuples(index=False, name=None):
        count = int(held.get(device, 0))
        if kind in ("GPU", "TPU") and count and device not in traced:
            text = f"{printable(name, 80)} holds {count} nodes, but its kernels and copies were not traced."
            notes.append(Note("no-device-lanes", text, count))
    return notes


def _copy_notes(copies: pd.DataFrame) -> list[Note]:
    notes = []
    for column, slug, what in (
        ("num_bytes", "copies-without-size", "do not say how many bytes they moved"),
        ("direction", "copies-without-direction", "do not say in which direction they went"),
    ):
        count = int(copies[column].isna().sum())
        if count:
            notes.append(Note(slug, f"{count} of {len(copies)} copies {what}.", count))
    return notes


def merge_notes(notes: Iterable[Note]) -> tuple[Note, ...]:
    """Return each note once, in order: the same sentence about several files or lanes is one note."""
    return tuple(dict.fromkeys(notes))


def find_era(raws: Sequence[RawTrace], rows: NodeRows, context: dict[str, Any]) -> str | None:
    """Return 'TF1' (graphs run by a Session) or 'TF2' (functions) as far as the content shows; null where it does not.

    Reference variables, client-terminated feeds (`_recv_x_0`) and arguments named `_arg_x_0_0` are made by a Session
    alone, function graphs by tf.function alone.

    Source: tensorflow/core/common_runtime/graph_execution_state.cc, direct_session.cc; core/public/version.h.
    """
    if any(graph.name.startswith("function:") for raw in raws for graph in raw.graphs):
        return "TF2"
    version = str(context.get("tf_version") or "")
    if version.startswith("1."):
        return "TF1"
    for name, op in zip(rows.name, rows.op, strict=True):
        if op in _REF_VARIABLES or name.startswith(("_arg_", "_recv_", "_retval_", "_send_")):
            return "TF1"
    producers = [g.graph.versions.producer for raw in raws for g in raw.graphs if g.graph.versions.producer]
    if producers and max(producers) <= _LAST_TF1_PRODUCER:
        return "TF1"
    return "TF2" if version[:1] >= "2" else None
