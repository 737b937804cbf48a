"""What to capture, and which calls of the step that is."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tfplace.errors import OutputError, UsageError

DEFAULT_PATH = "trace.pb"
_CPU = re.compile(r"\s*(?:/job:\S+/)?(?:/?device:)?CPU:\d+\s*", re.IGNORECASE)
SUFFIXES = (".pb", ".pbtxt", ".pb.gz", ".pbtxt.gz")


@dataclass(frozen=True)
class Options:
    """What the user asked for, checked when asked, so that nothing is found wrong in the middle of a training.

    Attributes:
        path: File to write; '.pbtxt' is text, '.pb' binary, either may end in '.gz'.
        skip: Calls that run before the first timed one: tracing, compilation, warm-up.
        steps: Calls to time.
        xplane: Write the profiler's own data beside it (`trace.xplane.pb`).
        accelerator: CPU device that plays the accelerator ('CPU:1') where there is no GPU.
        made_by: How the capture was asked for: 'trace', 'capture', 'KerasCallback' ...
    """

    path: str = DEFAULT_PATH
    skip: int = 2
    steps: int = 3
    xplane: bool = False
    accelerator: str | None = None
    made_by: str = "trace"

    def __post_init__(self) -> None:
        check_path(self.path)
        for name, least in (("skip", 0), ("steps", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"{name}={value!r} is not a whole number of at least {least}.")
        wanted = self.accelerator
        if wanted is not None and not (isinstance(wanted, str) and all(map(_CPU.fullmatch, wanted.split(",")))):
            raise UsageError(
                f"accelerator {wanted!r} is no logical CPU device.", "Write CPU:1, or several with commas: CPU:1,CPU:2."
            )

    @property
    def last(self) -> int:
        """Number of calls after which the capture is complete."""
        return self.skip + self.steps

    def is_timed(self, call: int) -> bool:
        """Tell whether call number `call` (from 0) is to be timed."""
        return self.skip <= call < self.last


def check_path(path: object) -> str:
    """Return `path` as absolute text.

    Raises:
        UsageError: It is no path, or its suffix is none of `SUFFIXES`.
        OutputError: Its folder is missing or cannot be written to.
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"{path!r} is not a file name.", 'Write @tfplace.trace or @tfplace.trace("trace.pb").')
    text = os.fspath(path)
    if not isinstance(text, str) or not text.lower().endswith(SUFFIXES):
        raise UsageError(f"{text!r}: the file name says the format and must end in one of {', '.join(SUFFIXES)}.")
    folder = Path(text).absolute().parent
    if not folder.is_dir():
        raise OutputError(f"{folder} is not a folder.", "Create it first.")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{folder} cannot be written to.", "Choose another folder for the trace.")
    if Path(text).is_dir():
        raise OutputError(f"{text} is a folder.", "Name a file.")
    return str(Path(text).absolute())
