"""Where one step ends and the next begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tfplace.model import schema

Int = npt.NDArray[np.int64]


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def recorded_steps(context: Mapping[str, Any], zero_ns: int) -> list[dict[str, Any]]:
    """Return the step windows that capture stored, in order of start, times from `zero_ns`; [] where it stored none.

    Args:
        context: {'steps': [{'num', 'start_ns', 'end_ns', 'cpu_time_ns'}]}, each part optional, nanoseconds since
            the epoch.
        zero_ns: The zero of the file's times.
    """
    steps = []
    recorded = context.get("steps")
    for stated in recorded if isinstance(recorded, list) else []:
        if not isinstance(stated, Mapping):
            continue
        start, end = _whole(stated.get("start_ns")), _whole(stated.get("end_ns"))
        known = start is not None and end is not None and end >= start
        steps.append(
            {
                "step_num": _whole(stated.get("num")),
                "start_ns": start - zero_ns if known and start is not None else None,
                "end_ns": end - zero_ns if known and end is not None else None,
                "cpu_time_ns": _whole(stated.get("cpu_time_ns")),
                "boundary": "context",
            }
        )
    steps.sort(key=lambda step: (step["start_ns"] is None, step["start_ns"] or 0))
    return steps


def file_step(events: pd.DataFrame) -> dict[str, Any]:
    """Return the one step that a file is: from its first event to its last; null times where it has no events."""
    timed = len(events) > 0
    return {
        "step_num": None,
        "start_ns": int(events["start_ns"].min()) if timed else None,
        "end_ns": int(events["end_ns"].max()) if timed else None,
        "cpu_time_ns": None,
        "boundary": "file",
    }


def assign_steps(events: pd.DataFrame, steps: Sequence[Mapping[str, Any]]) -> Int:
    """Return the number within `steps` of each event's step; -1 where it is in none.

    A kernel or copy that starts after a window but before the next is the earlier step's: the host runs ahead of
    the device.
    """
    if len(steps) == 1 and steps[0]["boundary"] == "file":
        return np.zeros(len(events), dtype=np.int64)
    windows = [(i, s["start_ns"], s["end_ns"]) for i, s in enumerate(steps) if s["start_ns"] is not None]
    if not windows or not len(events):
        return np.full(len(events), -1, dtype=np.int64)
    numbers = np.array([w[0] for w in windows], dtype=np.int64)
    ends = np.array([w[2] for w in windows], dtype=np.int64)
    start = events["start_ns"].to_numpy(dtype=np.int64)
    place = np.searchsorted(np.array([w[1] for w in windows], dtype=np.int64), start, side="right") - 1
    on_device = events["kind"].isin(["kernel", "memcpy", "memset"]).to_numpy()
    inside = (place >= 0) & ((start <= ends[place]) | on_device)
    return np.where(inside, numbers[place], -1)


def steps_table(steps: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return `schema.STEPS`."""
    columns = {
        name: pd.Series([step[name] for step in steps], dtype=schema.REF)
        for name in ("step_num", "start_ns", "end_ns", "cpu_time_ns")
    }
    numbers = columns["step_num"]
    if numbers.dropna().duplicated().any():  # each file counted from its own start: the numbers tell nothing
        columns["step_num"] = pd.Series([None] * len(steps), dtype=schema.REF)
    boundary = pd.Series([step["boundary"] for step in steps], dtype=schema.TEXT)
    return schema.conform("steps", pd.DataFrame({"step_id": range(len(steps)), **columns, "boundary": boundary}))
