"""Why a recorded program left no trace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tfplace.capture.absence import explain


def told(wanted: str | None, functions: list[str] = (), fetches: list[str] = (), **finder: Any) -> str:  # type: ignore[assignment]
    found = {"candidates": dict.fromkeys(functions), "written": False, "guard": SimpleNamespace(messages=[]), **finder}
    kinds = {name: SimpleNamespace(name=name, names={name}, num_nodes=1, runs=1) for name in fetches}
    sessions = SimpleNamespace(kinds=kinds, recording=None, runs_needed=3, guard=SimpleNamespace(messages=[]))
    return explain(SimpleNamespace(**found), sessions, wanted)


def test_the_name_spelt_most_alike_comes_first_and_the_list_stays_short() -> None:
    names = [f"helper_{number}" for number in range(20)]
    text = told("train_stp", [*names, "train_step"], ["loss"])
    assert text.startswith(
        "no step named 'train_stp' ran. Name one of these in --step, or leave it out: 'train_step', "
    )
    assert text.endswith(" and 17 more.")
    assert text.count("'") == 2 * (1 + 5)


def test_names_are_escaped_and_not_endless() -> None:
    text = told("a\x1b[31m", ["evil\x1b[2J\u202e", "x" * 5000])
    assert "\\x1b[31m" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert len(text) < 400


def test_without_any_call_the_wanted_name_is_told_too() -> None:
    assert "and no Session.run, so none named 'train'. Put @tf.function" in told("train")


def test_of_runs_that_are_too_few_the_last_is_told() -> None:
    assert told(None, [], ["init", "train"]).startswith("Session.run of 'train' ran 1 time, and 3 are needed.")


def test_an_own_fault_is_told_before_all_else() -> None:
    guard = SimpleNamespace(messages=["start: ImportError: no such name"])
    assert told("train", ["step"], guard=guard).startswith("capture failed at 'start: ImportError: no such name'.")
