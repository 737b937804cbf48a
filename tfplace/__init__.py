"""Where TensorFlow puts every op and variable, what crosses the bus, and what to change.

trace = tfplace.load("trace.pb")
report = tfplace.build_report(trace)
for finding in report.findings:
    print(finding.title)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfplace.api import Finding, Report, Trace, build_report, load

__version__ = "0.1.0"
__all__ = ["Finding", "Report", "Trace", "__version__", "build_report", "load"]


def __getattr__(name: str) -> Any:
    """Import the public names on first use: pandas takes 0.3 s, which `tfplace --help` has no use for."""
    if name in __all__:
        return getattr(importlib.import_module("tfplace.api"), name)
    raise AttributeError(f"module 'tfplace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
