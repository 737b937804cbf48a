"""Choosing steps: what belongs to them stays, with dense ids, and everything else goes."""

from __future__ import annotations

import pandas as pd
import pytest

from tests import report_samples as samples
from tests.builders import rows
from tfplace.errors import UsageError
from tfplace.model import schema
from tfplace.model.select import select_steps, step_numbers


def trace(numbers=(None, None)):
    steps = samples.steps()
    steps["step_num"] = pd.array(list(numbers), dtype="Int64")
    events = samples.events()
    copy = events.iloc[[0]].assign(kind="memcpy", step_id=1)
    events = schema.conform("events", pd.concat([events, copy]).assign(event_id=range(len(events) + 1)))
    copies = pd.DataFrame({"event_id": [3], "direction": ["H2D"], "num_bytes": [8], "device_id": [samples.GPU]})
    return samples.trace(steps=steps, events=events, copies=schema.conform("copies", copies))


def test_steps_without_numbers_count_from_one():
    assert step_numbers(trace()) == [1, 2]
    assert step_numbers(trace((100, None))) == [100, 2]


def test_events_and_copies_of_the_step_stay_with_dense_ids():
    second = select_steps(trace(), [2])
    assert rows(second.steps, "step_id", "step_num", "start_ns") == [(0, 2, 200_000)]
    assert rows(second.events, "event_id", "step_id", "kind") == [(0, 0, "kernel"), (1, 0, "memcpy")]
    assert rows(second.copies, "event_id", "num_bytes") == [(1, 8)]
    assert len(second.nodes) == len(trace().nodes)


def test_a_step_without_copies_has_none():
    first = select_steps(trace(), [1])
    assert rows(first.events, "event_id", "step_id") == [(0, 0), (1, 0)]
    assert first.copies.empty


def test_the_programs_own_numbers_choose():
    assert rows(select_steps(trace((100, 101)), [101]).steps, "step_num", "start_ns") == [(101, 200_000)]


def test_all_steps_change_nothing_but_their_numbers():
    whole = select_steps(trace(), [2, 1])
    assert rows(whole.events) == rows(trace().events)
    assert rows(whole.copies) == rows(trace().copies)


def test_an_unknown_step_names_those_that_there_are():
    with pytest.raises(UsageError, match="no step 7") as caught:
        select_steps(trace((100, 101)), [100, 7])
    assert caught.value.hint == "Its steps: 100, 101."


def test_a_trace_without_steps_says_so():
    with pytest.raises(UsageError) as caught:
        select_steps(samples.trace(steps=schema.empty("steps")), [1])
    assert caught.value.hint == "It has no steps at all."
