"""Nothing that capture does may change or end the user's training.

Every own action runs through `Guard.run` at a named site. The user's call is never inside: wrappers are
guarded-before, the user's call exactly once, guarded-after. The guard holds back `Exception` and nothing
wider, so Ctrl-C, `sys.exit` and a kill go on at once.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

MAX_FAULTS = 3  # own faults of one capture after which it stops trying

CURES = {
    "write": "Check that the folder exists, is writable and has room; the training was not affected.",
    "profiler start": "Times are missing from the trace: end any other profiler around the traced steps.",
    "profiler stop": "Times are missing from the trace; placement and transfers are still in it.",
    "convert": "Times are missing from the trace; placement and transfers are still in it.",
}
DEFAULT_CURE = "The training was not affected; set TFPLACE_STRICT=1 to see the error in full."


class CaptureWarning(UserWarning):
    """Capture could not do a part of its work, or was asked for something that it does not do."""


def is_disabled() -> bool:
    """Tell whether TFPLACE_DISABLE asks for no capture at all."""
    return os.environ.get("TFPLACE_DISABLE", "") not in ("", "0")


def is_strict() -> bool:
    """Tell whether TFPLACE_STRICT makes own faults fatal (for tests)."""
    return os.environ.get("TFPLACE_STRICT", "") not in ("", "0")


_said: set[str] = set()


def warn(text: str, *, once: str | None = None) -> None:
    """Warn the user; never raises, also not where warnings are errors.

    Args:
        text: What happened and the cure.
        once: Key of which only the first warning in this process is given.
    """
    if once is not None:
        if once in _said:
            return
        _said.add(once)
    try:
        warnings.warn(f"tfplace: {text}", CaptureWarning, stacklevel=_user_level())
    except Exception:
        # warnings are errors here (-W error): raising would end the training, so only say it
        if sys.stderr is not None:
            try:
                print(f"tfplace: {text}", file=sys.stderr)
            except Exception:  # a closed stderr is no reason to end a training either
                return


def _user_level() -> int:
    """Return the stack level of the first frame that is not ours."""
    own = os.path.dirname(__file__) + os.sep
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(own):
        frame, level = frame.f_back, level + 1
    return level


class Guard:
    """Keeps the faults of one capture inside.

    Attributes:
        faults: {site: number of faults held back}.
        messages: One line per fault, for the trace file.
    """

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.messages: list[str] = []
        self._lock = threading.Lock()
        self._on_exhausted: Callable[[], None] | None = None

    @property
    def exhausted(self) -> bool:
        """True once `MAX_FAULTS` faults were held back: capture is to stop."""
        return self.faults.total() >= MAX_FAULTS

    def when_exhausted(self, action: Callable[[], None]) -> None:
        """Call `action` (which must not raise) when the last allowed fault has happened."""
        self._on_exhausted = action

    def run(self, site: str, action: Callable[..., T], *args: Any, default: Any = None) -> T | Any:
        """Return `action(*args)`, or `default` where it raised an Exception.

        The first fault at a site gives one warning with its cure. With TFPLACE_STRICT=1 the fault is raised.
        """
        try:
            return action(*args)
        except Exception as error:
            if is_strict():
                raise
            self.note_fault(site, error)
            return default

    def note_fault(self, site: str, error: BaseException) -> None:
        """Count a fault and warn of the first at its site."""
        with self._lock:
            self.faults[site] += 1
            first = self.faults[site] == 1
            last = self.faults.total() == MAX_FAULTS
            self.messages.append(f"{site}: {type(error).__name__}: {error}"[:500])
        if first:
            cure = CURES.get(site, DEFAULT_CURE)
            warn(f"capture failed at '{site}' ({type(error).__name__}: {str(error)[:300]}). {cure}")
        if last:
            warn("capture switched itself off after three faults; the training goes on without it.")
            if self._on_exhausted is not None:
                self._on_exhausted()
