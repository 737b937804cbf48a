"""Why a recorded program left no trace: one clause that says what was seen, and the cure."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Any

MOST_NAMES = 5
_NAME_LENGTH = 80


def explain(functions: Any, sessions: Any, wanted: str | None) -> str:
    """Return why nothing was captured, as the rest of a sentence that ends in the cure.

    Args:
        functions: The `StepFinder`.
        sessions: The `SessionFinder`.
        wanted: Name of the step that was asked for; null = any.
    """
    faults = [*functions.guard.messages, *sessions.guard.messages]
    if faults:
        return f"capture failed at {_quoted(faults[0], 300)}. Set TFPLACE_STRICT=1 to see the error in full."
    kinds = list(sessions.kinds.values())
    if functions.written or sessions.recording is not None:
        return "what was captured held no graph, or could not be written; a warning above says which."
    if not functions.candidates and not kinds:
        named = "" if wanted is None else f", so none named {_quoted(wanted)}"
        return (
            f"the program ran no compiled function (tf.function, Keras fit) and no Session.run{named}. "
            "Put @tf.function on the training step, and leave tf.config.run_functions_eagerly off."
        )
    runs = [kind for kind in kinds if wanted is None or wanted in kind.names]
    if not runs and wanted is not None:
        return _not_named(wanted, {*functions.candidates, *(name for kind in kinds for name in kind.names)})
    if not runs:
        return "the program ended before a step was over."
    _, most = max(
        enumerate(runs), key=lambda one: (one[1].runs, one[0])
    )  # of equals the last: what initialises is first
    return (
        f"Session.run of {_quoted(most.name)} ran {most.runs} time{'s' * (most.runs != 1)}, and "
        f"{sessions.runs_needed} are needed. Run more steps, or write a smaller --skip."
    )


def _not_named(wanted: str, names: set[str]) -> str:
    """Say which steps there were; what is spelt most like the one asked for comes first."""
    alike = sorted(names, key=lambda name: (-SequenceMatcher(None, wanted, name).ratio(), name))
    listed = ", ".join(map(_quoted, alike[:MOST_NAMES]))
    more = f" and {len(alike) - MOST_NAMES} more" if len(alike) > MOST_NAMES else ""
    return f"no step named {_quoted(wanted)} ran. Name one of these in --step, or leave it out: {listed}{more}."


def _quoted(text: str, limit: int = _NAME_LENGTH) -> str:
    """Return a text of the program's in quotes, control and direction characters escaped."""
    return repr(text if len(text) <= limit else f"{text[: limit - 1]}…")
