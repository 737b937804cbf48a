"""From a Trace to its Report in one call."""

from __future__ import annotations

from tfplace.analyze.kernels import KernelRegistry
from tfplace.analyze.study import analyze
from tfplace.diagnose.rule import run_rules
from tfplace.diagnose.rules import ALL_RULES
from tfplace.diagnose.thresholds import Thresholds
from tfplace.model.trace import Trace
from tfplace.report.model import Report
from tfplace.report.summary import summarize


def build_report(
    trace: Trace, *, thresholds: Thresholds | None = None, kernels: KernelRegistry | None = None
) -> Report:
    """Analyze a trace, run every rule, and compute the Report.

    Args:
        trace: What was read.
        thresholds: What the rules compare with, the bus speed among them; None = the defaults.
        kernels: Answers to 'has this op a GPU kernel' to use instead of the trace's own or the shipped table.

    Returns:
        The Report; of an empty trace, one that says so.
    """
    limits = thresholds or Thresholds()
    analysis = analyze(trace, kernels=kernels)
    return summarize(analysis, run_rules(ALL_RULES, analysis, limits), limits)
