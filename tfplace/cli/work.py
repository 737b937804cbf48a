"""Reading and analyzing for the commands, and `tfplace report`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from tfplace.analyze.kernels import KernelRegistry, from_tensorflow
from tfplace.diagnose.thresholds import Thresholds
from tfplace.model.select import select_steps
from tfplace.model.trace import Trace
from tfplace.read.load import load_trace
from tfplace.report.build import build_report
from tfplace.report.json_report import render_json
from tfplace.report.markdown import render_markdown
from tfplace.report.model import Report
from tfplace.report.output import STDOUT, check_output, write_output
from tfplace.report.plain import render_text

STDIN = "-"
_LARGE_BYTES = 8_000_000  # smaller files are read in a blink


def run_report(
    *,
    traces: Sequence[str],
    format_: str,
    output: str,
    force: bool,
    show_all: bool,
    accelerator: str | None,
    steps: Sequence[int],
    bus_gbps: float | None,
    kernels_from: str,
) -> None:
    """Carry out `tfplace report`."""
    check_output(output, force)
    trace = read_trace(traces, accelerator, steps)
    report = build_report(trace, thresholds=limits(bus_gbps), kernels=chosen_kernels(trace, kernels_from))
    write_output(
        render(report, format_, show_all, for_terminal=output == STDOUT and sys.stdout.isatty()), output, force
    )
    if output != STDOUT:
        click.echo(f"tfplace: wrote {output}", err=True)


def render(report: Report, format_: str, show_all: bool, for_terminal: bool) -> str:
    """Return the report in the format asked for; text has colour only in a terminal."""
    if format_ == "json":
        return render_json(report)
    if format_ == "markdown":
        return render_markdown(report, show_all)
    return _render_terminal(report, show_all) if for_terminal else render_text(report, show_all)


def _render_terminal(report: Report, show_all: bool) -> str:
    from rich.console import Console  # noqa: PLC0415 - 0.05 s that pipes need not pay

    from tfplace.report.terminal import render_terminal  # noqa: PLC0415

    console = Console()
    return render_terminal(report, console.width, console.color_system, show_all)


def read_trace(traces: Sequence[str], accelerator: str | None, steps: Sequence[int] = ()) -> Trace:
    """Read the traces, with a line on stderr where that takes a while, and keep only `steps` if any are named."""
    if STDIN in traces and sys.stdin.isatty():
        click.echo("tfplace: reading standard input; end it with Ctrl-D", err=True)
    with Progress(traces) as progress:
        trace = load_trace(list(traces), accelerator=accelerator, progress=progress.update)
    return select_steps(trace, steps) if steps else trace


def limits(bus_gbps: float | None) -> Thresholds:
    """Return the default thresholds, with the bus speed that the user names."""
    return Thresholds() if bus_gbps is None else replace(Thresholds(), bus_gbps=bus_gbps)


def chosen_kernels(trace: Trace, kernels_from: str) -> KernelRegistry | None:
    """Return the installed TensorFlow's answers where asked for and the trace has none of its own."""
    if kernels_from == "tensorflow" and not trace.context.get("kernels"):
        return from_tensorflow()
    return None


class Progress:
    """A line on stderr while large files are read: it counts in a terminal, and stands still in a log."""

    def __init__(self, traces: Sequence[str]) -> None:
        self._size = sum(map(_size_of, traces))
        self._live = sys.stderr.isatty()
        self._shown = ""

    def __enter__(self) -> Progress:
        if self._size >= _LARGE_BYTES:
            self._show(f"tfplace: reading {self._size / 1e6:,.0f} MB", end="\r" if self._live else "\n")
        return self

    def update(self, done: int, total: int) -> None:
        """Take how many bytes of the current file are read; only large files are worth a word."""
        if self._live and total >= _LARGE_BYTES:
            self._show(f"tfplace: reading {total / 1e6:,.0f} MB: {100 * done // total} %", end="\r")

    def __exit__(self, *_: object) -> None:
        if self._live and self._shown:
            self._show(" " * len(self._shown), end="\r")

    def _show(self, text: str, end: str) -> None:
        if text != self._shown:
            self._shown = text
            print(text, end=end, file=sys.stderr, flush=True)


def _size_of(path: str) -> int:
    """Return the bytes of a file, or of the files of a folder; 0 where that cannot be told."""
    try:
        target = Path(path)
        if target.is_dir():
            return sum(item.stat().st_size for item in target.iterdir() if item.is_file())
        return target.stat().st_size if target.is_file() else 0
    except (OSError, ValueError):
        return 0
