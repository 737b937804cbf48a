"""Small steps with known numbers, for the tests of the rules.

In all of them the host op `step` runs from 0 to `length` microseconds, so that a step's length is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from tests.builders import CPU0, GPU0, gpu_lanes, graph, lane, load, node, op, recv, run_metadata, send
from tfplace.analyze.analysis import Analysis
from tfplace.analyze.study import analyze
from tfplace.diagnose.rule import Finding, Outcome, run_rules
from tfplace.diagnose.rules import ALL_RULES
from tfplace.diagnose.thresholds import Thresholds


def outcome(slug: str, analysis: Analysis, **thresholds: float) -> Outcome:
    """Run one rule; a fault of the rule fails the test."""
    rule = next(rule for rule in ALL_RULES if rule.slug == slug)
    (result,) = run_rules([rule], analysis, Thresholds(**thresholds))
    assert result.outcome != "failed", result.reason
    return result


def findings(slug: str, analysis: Analysis, **thresholds: float) -> tuple[Finding, ...]:
    result = outcome(slug, analysis, **thresholds)
    assert result.outcome != "skipped", result.reason
    return result.findings


def finding(slug: str, analysis: Analysis, **thresholds: float) -> Finding:
    (one,) = findings(slug, analysis, **thresholds)
    return one


def study(*messages: Any, simulated: str | None = None, tf_era: str | None = None, **more: Any) -> Analysis:
    trace = load(*messages, **more)
    changes = {key: value for key, value in (("simulated", simulated), ("tf_era", tf_era)) if value is not None}
    return analyze(dataclasses.replace(trace, **changes))


def crossing(
    edge: str, source: str, src: str, dst: str, *, host_send: bool = False, host_recv: bool = False, **attrs: Any
) -> tuple[Any, Any]:
    """Return the Send and the Recv of an edge; the Recv is named after the edge."""
    return send(edge, source, src, dst, host=host_send, **attrs), recv(
        f"{edge}/_recv", edge, src, dst, host=host_recv, **attrs
    )


def step(
    partitions: dict[str, Iterable[Any]],
    *,
    length: float | None = None,
    kernels: Sequence[Any] = (),
    copies: Sequence[Any] = (),
    outputs: Sequence[Any] = (),
    gpu_outputs: Sequence[Any] = (),
    more_lanes: Sequence[Any] = (),
) -> Any:
    """Return a RunMetadata of these graphs; with times where `length`, kernels, copies or outputs are given.

    `outputs` and `gpu_outputs` are (node, op, output(...)): sizes as step_stats record them.
    """
    graphs = [graph(device, *nodes) for device, nodes in partitions.items()]
    timed = length is not None or kernels or copies or outputs or gpu_outputs
    lanes: list[Any] = []
    if timed:
        length = 1000 if length is None else length
        on_host, on_gpu = (
            [op(name, kind, start=0, duration=0, outputs=[value]) for name, kind, value in rows]
            for rows in (outputs, gpu_outputs)
        )
        lanes = [lane(CPU0, op("step", "NoOp", start=0, duration=length), *on_host)]
        lanes += [lane(GPU0, *on_gpu)] if on_gpu else []
        if kernels or copies:
            lanes += gpu_lanes(0, kernels=list(kernels), copies=list(copies))
    return run_metadata(graphs, [*lanes, *more_lanes])


def weights(shape: str = "[512,512]", dtype: str = "float32", *, on: str = CPU0, to: Sequence[str] = (GPU0,)) -> Any:
    """Return {device: nodes}: w on `on`, read by a Relu on each of `to`. [512,512] float32 is 1,048,576 bytes."""
    home = [node("w", "VariableV2", dtype=dtype, shape=shape), node("w/read", "Identity", "w", T=dtype)]
    partitions = {on: home}
    for number, device in enumerate(to):
        if device == on:
            home.append(node(f"y{number}", "Relu", "w/read", T=dtype))
            continue
        out, into = crossing(f"edge_{number}_w/read", "w/read", on, device, T=dtype, tensor_type=dtype)
        home.append(out)
        partitions.setdefault(device, []).extend([into, node(f"y{number}", "Relu", into.name, T=dtype)])
    return partitions
