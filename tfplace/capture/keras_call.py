"""Whether the `fit`, `evaluate` or `predict` that called a callback still runs.

Keras tells a callback of no error: not of one in another callback, in the data, nor of Ctrl-C. To wrap `fit` would put
a frame of ours into the user's tracebacks, and to hold its frame would hold the user's data. So the call is only
looked at from outside, and the user's exception passes untouched: Keras' list of callbacks goes when the call's frame
goes, which finishes the capture at once in a script; where the error keeps the frame (a notebook's last traceback),
the next capture asks whether the frame is still on the stack of a thread.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any


class KerasCall:
    """One call of `fit`, `evaluate` or `predict`; make it in the callback's `on_*_begin`.

    Args:
        callback: The callback that is being called.
        when_gone: What to do when the call has left its thread without a trace; not done in other threads, where the
            garbage collector may come upon it in the middle of anything.
    """

    def __init__(self, callback: Any, when_gone: Callable[[], None]) -> None:
        self._thread = threading.get_ident()
        self._when_gone = when_gone
        self._list: Any = None
        self._code: Any = None
        for frame in _outwards(sys._getframe(1)):
            owner = frame.f_locals.get("self")
            if self._list is None and any(one is callback for one in _callbacks_of(owner)):
                self._list = weakref.ref(owner, self._gone)
            elif self._list is not None and owner is not self._list():
                self._code = frame.f_code if self._runs_in(frame, frame.f_code) else None
                return

    def has_ended(self) -> bool:
        """Tell whether the call is over; False where that cannot be known."""
        if self._list is None or self._list() is None:
            return self._list is not None
        if self._code is None:  # somebody's own loop, which keeps the list elsewhere
            return False
        frames = (frame for newest in sys._current_frames().values() for frame in _outwards(newest))
        return not any(self._runs_in(frame, self._code) for frame in frames)

    def _runs_in(self, frame: Any, code: Any) -> bool:
        """Tell whether a frame is that of the call: it holds the list in a variable of its own."""
        if frame.f_code is not code or frame.f_locals is frame.f_globals:
            return False
        callbacks = self._list()
        return callbacks is not None and any(value is callbacks for value in frame.f_locals.values())

    def _gone(self, _: Any) -> None:
        if threading.get_ident() == self._thread:
            self._when_gone()


def _outwards(frame: Any) -> Iterator[Any]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _callbacks_of(thing: Any) -> list[Any]:
    """Return the callbacks of Keras' CallbackList; [] of anything else."""
    callbacks = getattr(thing, "__dict__", {}).get("callbacks")
    return callbacks if isinstance(callbacks, list) else []
