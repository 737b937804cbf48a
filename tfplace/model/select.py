"""A part of a Trace: some of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from tfplace.errors import UsageError
from tfplace.model import schema
from tfplace.model.trace import Trace

_SHOWN = 20


def step_numbers(trace: Trace) -> list[int]:
    """Return what people call the steps: the program's own numbers, else 1, 2, 3 ... in order."""
    own = trace.steps["step_num"]
    return [position if pd.isna(value) else int(value) for position, value in enumerate(own.tolist(), start=1)]


def select_steps(trace: Trace, numbers: Sequence[int]) -> Trace:
    """Return the trace with only the steps of these numbers; graphs stay whole.

    Raises:
        UsageError: The trace has no step of one of the numbers.
    """
    known = step_numbers(trace)
    missing = [number for number in numbers if number not in known]
    if missing:
        shown = ", ".join(map(str, known[:_SHOWN])) + (" ..." if len(known) > _SHOWN else "")
        raise UsageError(
            f"the trace has no step {missing[0]}.", f"Its steps: {shown}." if known else "It has no steps at all."
        )
    steps = trace.steps[[number in set(numbers) for number in known]]
    new_ids = {old: new for new, old in enumerate(steps["step_id"].tolist())}
    events = trace.events[trace.events["step_id"].isin(list(new_ids))]
    event_ids = {old: new for new, old in enumerate(events["event_id"].tolist())}
    copies = trace.copies[trace.copies["event_id"].isin(list(event_ids))]
    memory = trace.memory[trace.memory["event_id"].isin(list(event_ids))]
    steps = steps.assign(step_num=[number for number in known if number in set(numbers)])
    return replace(
        trace,
        steps=schema.conform("steps", steps.assign(step_id=steps["step_id"].map(new_ids))),
        events=schema.conform(
            "events",
            events.assign(step_id=events["step_id"].map(new_ids), event_id=events["event_id"].map(event_ids)),
        ),
        copies=schema.conform("copies", copies.assign(event_id=copies["event_id"].map(event_ids))),
        memory=schema.conform("memory", memory.assign(event_id=memory["event_id"].map(event_ids))),
    )
