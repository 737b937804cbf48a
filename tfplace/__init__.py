"""Where TensorFlow puts every op and variable, what crosses the bus, and what to change.

@tfplace.trace("trace.pb")          # record steps of a training function
def train_step(images, labels): ...

trace = tfplace.load("trace.pb")
for finding in tfplace.build_report(trace).findings:
    print(finding.title)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfplace.capture.after_import import after_import
from tfplace.version import __version__

if TYPE_CHECKING:
    from tfplace import capture, simulate
    from tfplace.api import Finding, Report, Trace, build_report, load
    from tfplace.capture.decorator import trace
    from tfplace.capture.hook import SessionHook, trace_session
    from tfplace.capture.keras import KerasCallback

_HOMES = {
    "Finding": "tfplace.api",
    "Report": "tfplace.api",
    "Trace": "tfplace.api",
    "build_report": "tfplace.api",
    "load": "tfplace.api",
    "KerasCallback": "tfplace.capture.keras",
    "SessionHook": "tfplace.capture.hook",
    "trace": "tfplace.capture.decorator",
    "trace_session": "tfplace.capture.hook",
}
_PACKAGES = ("capture", "simulate")

__all__ = [
    "Finding",
    "KerasCallback",
    "Report",
    "SessionHook",
    "Trace",
    "__version__",
    "build_report",
    "capture",
    "load",
    "simulate",
    "trace",
    "trace_session",
]


def __getattr__(name: str) -> Any:
    """Import the public names on first use: studying needs no capture, capturing no pandas, `--help` neither."""
    if name in _PACKAGES:
        return importlib.import_module(f"tfplace.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tfplace' has no attribute {name!r}")


def _watch_variables() -> None:
    importlib.import_module("tfplace.capture.sources").watch_when_loaded()


# Most programs make their variables before they reach the step that is captured: note who made them from now on.
after_import("tensorflow", _watch_variables)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
