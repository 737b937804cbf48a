"""From a Trace to its Analysis: every joined fact, worked out once."""

from __future__ import annotations

from tfplace.analyze.analysis import Analysis
from tfplace.analyze.cargo import describe_pairs
from tfplace.analyze.dataflow import Dataflow
from tfplace.analyze.kernels import KernelRegistry, from_context, load_shipped
from tfplace.analyze.pairs import HostDevices, find_pairs
from tfplace.analyze.placement import Placer, count_placement
from tfplace.analyze.steps import measure_steps
from tfplace.analyze.transfers import build_transfers
from tfplace.analyze.variables import find_variables, owners, variable_rows
from tfplace.analyze.verdicts import Judge, measure_movement, movement_columns
from tfplace.model.trace import Note, Trace


def choose_kernels(trace: Trace) -> KernelRegistry:
    """Return the answers that capture stored in the trace, else the shipped table."""
    stored = trace.context.get("kernels")
    return from_context(stored) if stored else load_shipped()


def analyze(trace: Trace, *, kernels: KernelRegistry | None = None) -> Analysis:
    """Work out transfers, variables, reasons and times of a trace.

    Args:
        trace: What was read.
        kernels: Kernel answers to use instead of the trace's own or the shipped table.

    Returns:
        The analysis; of an empty trace, one of empty tables.
    """
    flow = Dataflow(trace)
    registry = kernels or choose_kernels(trace)
    hosts = HostDevices(trace)
    times = measure_steps(trace)
    found = find_variables(flow, trace.context)
    pairs = find_pairs(flow, hosts)
    freights = describe_pairs(trace, flow, pairs, found)
    transfers = build_transfers(
        trace, flow, freights, owner=owners(found), hosts=hosts, exposed_ns=times.exposed_by_event
    )
    placer = Placer(trace, flow, registry, found)
    moves = measure_movement(flow, found, transfers)
    steps = max(len(trace.steps), 1)
    edges_known = trace.has_graphs or len(trace.copies) > 0
    judge = Judge(trace, flow, placer, edges_known)
    verdicts = [judge.judge(variable, move) for variable, move in zip(found, moves, strict=True)]
    variables = variable_rows(trace, flow, found, movement_columns(moves, steps, edges_known), verdicts)
    has_accelerator = bool((trace.devices["role"] == "device").any())
    return Analysis(
        trace=trace,
        flow=flow,
        transfers=transfers,
        variables=variables,
        reasons=placer.reasons(pairs if has_accelerator else []),
        placement=count_placement(flow),
        kernels=registry,
        step_count=steps,
        step_time_ns=times.step_time_ns,
        gpu_busy_share=times.busy_share,
        exposed_copy_ns=times.exposed_copy_ns,
        notes=_notes(flow),
    )


def _notes(flow: Dataflow) -> tuple[Note, ...]:
    notes = []
    if flow.unpaired:
        text = "Send or Recv nodes have no other half in the trace: a partition graph is missing."
        notes.append(Note("unpaired-transfers", text, len(flow.unpaired)))
    collectives = sum(op.startswith(("Collective", "Nccl")) for op in flow.op)
    if collectives:
        text = "Collective ops (all-reduce and its kin) move data between devices inside themselves: it is in no count."
        notes.append(Note("collectives", text, collectives))
    return tuple(notes)
