"""The one capture that is on: there is one profiler and one graph collector per process."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfplace.capture.context import Notes


class Holder:
    """What a capture tells to one that wants its place.

    Attributes:
        done: Nothing more is captured.
        has_ended: Tells whether the program has left what is captured (a `fit`, a session); null = nobody can tell.
    """

    done: bool
    step_name: str
    notes: Notes
    has_ended: Callable[[], bool] | None = None

    def is_over(self) -> bool:
        """True where no further step can come; never raises an Exception."""
        with contextlib.suppress(Exception):
            return self.has_ended is not None and self.has_ended()
        return False

    def finish(self) -> None:
        """Write what there is, put everything back, leave the slot."""
        raise NotImplementedError

    def finish_early(self) -> None:
        """Finish, and say in the file that steps are missing; does nothing where it is finished."""
        if not self.done:
            self.notes.add("ended-early", f"{self.step_name} ended before all steps that were asked for had run.")
        self.finish()


class _Slot:
    holder: Any = None


_slot = _Slot()
_slot_lock = threading.RLock()


def claim(capture: Any) -> bool:
    """Make `capture` the live one; False where another is.

    Nobody tells a Keras callback or a session hook of an error in the program's own loop. So one whose `fit` or
    session is over is finished here: else it would keep out every later capture of a notebook.
    """
    holder = _slot.holder
    if isinstance(holder, Holder) and holder is not capture and holder.is_over():
        holder.finish_early()
    with _slot_lock:
        if _slot.holder is None or _slot.holder is capture:
            _slot.holder = capture
            return True
        return False


def release(capture: Any) -> None:
    """Let the next capture begin; does nothing where `capture` is not the live one."""
    with _slot_lock:
        if _slot.holder is capture:
            _slot.holder = None


def live() -> Any:
    """Return the capture that is on, or null."""
    return _slot.holder


def _forget_in_child() -> None:
    """After a fork the child has no live capture: its profiler threads and its parent's file are not its own."""
    if _slot.holder is not None:
        with contextlib.suppress(Exception):
            _slot.holder.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
