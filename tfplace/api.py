"""What Python programs call: load a trace, build its report."""

from __future__ import annotations

import os

from tfplace.diagnose.rule import Finding
from tfplace.model.trace import Trace
from tfplace.read.load import load_trace
from tfplace.report.build import build_report
from tfplace.report.model import Report

__all__ = ["Finding", "Report", "Trace", "build_report", "load"]


def load(*paths: str | os.PathLike[str], accelerator: str | None = None) -> Trace:
    """Read one or more trace files, or a folder of them, as the steps of one Trace.

    Args:
        paths: Files or folders; '-' reads standard input.
        accelerator: Logical CPU device to treat as the accelerator: 'CPU:1'.

    Raises:
        UnreadableTraceError: A file cannot be opened or is damaged beyond use.
        UnsupportedFormatError: A file is not a trace that tfplace reads.
        UsageError: The trace has no such accelerator.
    """
    return load_trace([os.fspath(path) for path in paths], accelerator=accelerator)
