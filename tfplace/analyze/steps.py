"""Times of a step: how long it is, how busy the accelerators are, how much copy time nothing hides."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tfplace.analyze.intervals import covered, length, union
from tfplace.model.trace import Trace


@dataclass(frozen=True)
class StepTimes:
    """Measured times, means over the steps; null where the trace has none.

    Attributes:
        step_time_ns: Length of a step.
        busy_share: Share of the step in which at least one kernel ran, mean over the accelerators with kernels.
        exposed_copy_ns: Copy time per step in which no kernel ran on the copy's GPU.
        exposed_by_event: {memcpy event: its exposed time}.
    """

    step_time_ns: float | None = None
    busy_share: float | None = None
    exposed_copy_ns: float | None = None
    exposed_by_event: dict[int, int] = field(default_factory=dict)


def _mean_step(trace: Trace) -> float | None:
    timed = trace.steps.dropna(subset=["start_ns", "end_ns"])
    if timed.empty:
        return None
    spans = (timed["end_ns"] - timed["start_ns"]).astype("int64")
    return float(spans.mean()) if (spans > 0).any() else None


def measure_steps(trace: Trace) -> StepTimes:
    """Measure busy and exposed time from kernel and copy lanes of real accelerators.

    Times of a simulated GPU, or of a CPU that plays the accelerator, are not a GPU's: null.
    """
    step_time = _mean_step(trace)
    if trace.simulated is not None or not (trace.devices["kind"] == "GPU").any():
        return StepTimes(step_time)
    kernels = trace.events[trace.events["kind"] == "kernel"]
    if kernels.empty:
        return StepTimes(step_time)
    copies = trace.events[trace.events["kind"] == "memcpy"]
    steps = max(len(trace.steps), 1)
    shares: list[float] = []
    exposed: dict[int, int] = {}
    exposed_total = 0
    for device in sorted(kernels["device_id"].dropna().unique().tolist()):
        mine = kernels[kernels["device_id"] == device]
        busy = union(mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy())
        if step_time:
            shares.append(length(busy) / (step_time * steps))
        here = copies[copies["device_id"] == device]
        starts, ends = here["start_ns"].to_numpy(), here["end_ns"].to_numpy()
        bare = (ends - starts) - covered(starts, ends, busy)
        exposed.update(zip(here["event_id"].tolist(), bare.tolist(), strict=True))
        copying = union(starts, ends)
        exposed_total += length(copying) - int(covered(*copying, busy).sum())
    exposed_total += _exposed_without_kernels(trace, exposed)
    busy_share = float(np.mean(shares)) if shares else None
    return StepTimes(step_time, busy_share, exposed_total / steps, exposed)


def _exposed_without_kernels(trace: Trace, exposed: dict[int, int]) -> int:
    """Copies on a GPU that ran no kernel at all are exposed whole."""
    events = trace.events
    rest = events[(events["kind"] == "memcpy") & ~events["event_id"].isin(list(exposed))]
    whole = (rest["end_ns"] - rest["start_ns"]).astype("int64")
    exposed.update(zip(rest["event_id"].tolist(), whole.tolist(), strict=True))
    return length(union(rest["start_ns"].to_numpy(), rest["end_ns"].to_numpy()))
