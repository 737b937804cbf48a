"""What every decoder gives, and what may go wrong in all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfplace.read.raw import RawStepStats

Progress = Callable[[int, int], None]
"""progress(bytes done, bytes in all)"""


@dataclass
class Decoded:
    """A file's content.

    Attributes:
        kind: RunMetadata, StepStats or GraphDef.
        message: The message of that type, without its node_stats.
        step_stats: Its node_stats; None where it holds none.
        mangled: Strings in which U+FFFD stands for bytes that are not UTF-8.
        cut: Where the content breaks off: 'line 12', 'byte 4,711'; empty where it is complete.
    """

    kind: str
    message: Any
    step_stats: RawStepStats | None = None
    mangled: int = 0
    cut: str = ""
