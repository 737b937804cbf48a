"""When the functions of a program ran: what tells apart two that have an edge of the same name."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tfplace.analyze.dataflow import Dataflow
from tfplace.model.trace import Trace

_NO_STEP = -1


def graph_group(flow: Dataflow, node: int) -> str:
    """Return what a node's graph is a part of: 'function:2' of 'function:2/partition:1'."""
    return flow.graph[node].partition("/")[0]


class Runs:
    """Starts of the events of each function, or other group of graphs, in each step."""

    def __init__(self, trace: Trace, flow: Dataflow) -> None:
        events = trace.events
        rows = np.flatnonzero(events["node_id"].notna().to_numpy())
        nodes = events["node_id"].to_numpy(dtype=np.int64, na_value=_NO_STEP)[rows].tolist()
        steps = events["step_id"].to_numpy(dtype=np.int64, na_value=_NO_STEP)[rows].tolist()
        starts = events["start_ns"].to_numpy(dtype=np.int64)[rows].tolist()
        found: dict[tuple[str, int], list[int]] = {}
        for node, step, start in zip(nodes, steps, starts, strict=True):
            found.setdefault((graph_group(flow, node), step), []).append(start)
        self._starts: dict[tuple[str, int], npt.NDArray[np.int64]] = {
            key: np.sort(np.array(values, dtype=np.int64)) for key, values in found.items()
        }

    def distance(self, group: str, step: int | None, moment: int) -> tuple[int, int]:
        """Return how far a moment is from the group's run in that step, and from the nearest event of it.

        Inside the run the first is 0. A group that did not run is farther than any that did.
        """
        starts = self._starts.get((group, _NO_STEP if step is None else step))
        if starts is None:
            return 1 << 62, 1 << 62
        first, last = int(starts[0]), int(starts[-1])
        return max(first - moment, moment - last, 0), int(np.abs(starts - moment).min())
