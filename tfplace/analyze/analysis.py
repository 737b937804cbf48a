"""All that rules and reports may know: the Trace and what was worked out from it, once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from tfplace.analyze.dataflow import Dataflow
from tfplace.analyze.kernels import KernelRegistry
from tfplace.model.rows import python_values
from tfplace.model.trace import Note, Trace


@dataclass(frozen=True)
class Analysis:
    """A trace and its analyses.

    Attributes:
        trace: What was read.
        flow: The step's dataflow with Send/Recv pairs bridged; fast neighbour look-ups.
        transfers: `schema.TRANSFERS`; one row per copy seen, plus one per pair without a copy.
        variables: `schema.VARIABLES`.
        reasons: Why each host node of a job with an accelerator is on the host.
            Columns: node_id, reason (user-request, strategy-request, input-pipeline, int32-host, string, resource,
            no-gpu-kernel, colocation, variable, grappler, unknown), detail (one sentence), harmless (bool: nothing it
            makes, directly or through other host nodes, is sent to a device).
        placement: Columns: device_id, op, nodes (count).
        kernels: Answers 'has this op a GPU kernel for these types'.
        step_count: Traced steps, at least 1.
        step_time_ns: Mean length of a step; null where there are no times.
        gpu_busy_share: Share of the step in which at least one kernel ran, mean over accelerators; null unknown.
        exposed_copy_ns: Copy time per step not hidden behind kernels; null unknown.
        notes: Notes of the analyses, beside `trace.notes`.
    """

    trace: Trace
    flow: Dataflow
    transfers: pd.DataFrame = field(repr=False)
    variables: pd.DataFrame = field(repr=False)
    reasons: pd.DataFrame = field(repr=False)
    placement: pd.DataFrame = field(repr=False)
    kernels: KernelRegistry
    step_count: int
    step_time_ns: float | None
    gpu_busy_share: float | None
    exposed_copy_ns: float | None
    notes: tuple[Note, ...] = ()

    def line_of(self, node: int) -> str | None:
        """Return the user's line ('train.py:41') that made a node; null where the trace does not tell."""
        return self._lines[node]

    @cached_property
    def _lines(self) -> list[str | None]:
        return python_values(self.trace.nodes["source"])

    @cached_property
    def accelerators(self) -> pd.DataFrame:
        """Rows of `trace.devices` whose role is device."""
        rows: pd.DataFrame = self.trace.devices[self.trace.devices["role"] == "device"]
        return rows
