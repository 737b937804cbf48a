"""`tfplace timeline`: a file for chrome://tracing and Perfetto, or one in Perfetto's own format."""

from __future__ import annotations

import re
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import click

from tfplace.analyze.study import analyze
from tfplace.cli.work import read_trace
from tfplace.diagnose.rule import run_rules
from tfplace.diagnose.rules import ALL_RULES, order_findings
from tfplace.diagnose.thresholds import Thresholds
from tfplace.errors import UsageError
from tfplace.model.select import select_steps, step_numbers
from tfplace.model.trace import Trace
from tfplace.report.output import STDOUT, check_output, stream_output
from tfplace.report.timeline.build import build_timeline
from tfplace.report.timeline.chrome import compressed, write_chrome
from tfplace.report.timeline.model import Timeline
from tfplace.report.timeline.perfetto import write_perfetto
from tfplace.report.timeline.viewer import find_viewer, serve
from tfplace.report.wording import count_of

_RANGE = re.compile(r"\s*(-?\d+)?\s*(:)?\s*(-?\d+)?\s*")


def run_timeline(
    *,
    traces: Sequence[str],
    output: str | None,
    force: bool,
    steps: str | None,
    max_events: int,
    draw_all: bool,
    accelerator: str | None,
    open_viewer: bool,
) -> None:
    """Carry out `tfplace timeline`."""
    folder = find_viewer() if open_viewer else None
    if output is None and folder is None:
        raise UsageError("timeline needs a file to write.", "Add -o timeline.json.gz ('-o -' writes to a pipe).")
    if output == STDOUT and sys.stdout.isatty():
        raise UsageError("a timeline is not for a terminal.", "Add -o timeline.json.gz.")
    if output == STDOUT and folder is not None:
        raise UsageError("--open shows a file, not a pipe.", "Leave out '-o -'.")
    if output is not None:
        check_output(output, force)
    trace = read_trace(traces, accelerator)
    if steps is not None:
        trace = select_steps(trace, chosen_steps(trace, steps))
    analysis = analyze(trace)
    findings = order_findings(run_rules(ALL_RULES, analysis, Thresholds()))
    timeline = build_timeline(analysis, findings, None if draw_all else max_events)
    for note in timeline.left_out:
        click.echo(f"tfplace: {note}", err=True)
    if output is not None:
        write_timeline(timeline, output, force)
        if output != STDOUT:
            counts = f"{count_of(timeline.event_count, 'event')} on {count_of(len(timeline.tracks), 'track')}"
            viewers = "https://ui.perfetto.dev" + ("" if _is_native(output) else " or chrome://tracing")
            where = "" if folder else f"; open it in {viewers}"
            click.echo(f"tfplace: wrote {output}: {counts}{where}", err=True)
    if folder is not None:
        _show(timeline, output, folder)


def chosen_steps(trace: Trace, text: str) -> list[int]:
    """Return the trace's step numbers that '3', '3:7', '3:' or ':7' names, both ends included.

    Raises:
        UsageError: The text is none of these, or the trace has no such step.
    """
    match = _RANGE.fullmatch(text)
    if match is None or (match[1] is None and match[3] is None):
        raise UsageError(f"--steps {text!r} is not a range.", "Write A:B, A: or :B, or one number.")
    known = step_numbers(trace)
    first = int(match[1]) if match[1] else None
    last = int(match[3]) if match[3] else None if match[2] else first
    if first is not None and last is not None and first > last:
        raise UsageError(f"--steps {text} ends before it begins.", f"Write --steps {last}:{first}.")
    chosen = [n for n in known if (first is None or n >= first) and (last is None or n <= last)]
    if not chosen:
        shown = f"Its steps go from {min(known)} to {max(known)}." if known else "It has no steps at all."
        raise UsageError(f"the trace has no step in {text}.", shown)
    return chosen


def write_timeline(timeline: Timeline, path: str, force: bool = False) -> None:
    """Write the timeline as its path ends: .pftrace is Perfetto's own format, all else JSON; .gz compresses either."""
    write_events = write_perfetto if _is_native(path) else write_chrome

    def write(out: BinaryIO) -> None:
        if path.endswith(".gz"):
            with compressed(out) as stream:
                write_events(timeline, stream)
        else:
            write_events(timeline, out)

    stream_output(write, path, force)


def _is_native(path: str) -> bool:
    return path.removesuffix(".gz").endswith(".pftrace")


def _show(timeline: Timeline, output: str | None, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="tfplace-") as scratch:
        if output is None:
            output = str(Path(scratch) / "timeline.json.gz")
            write_timeline(timeline, output)
        serve(Path(output).resolve(), folder, _announce)


def _announce(address: str) -> None:
    click.echo(f"tfplace: Perfetto is at {address}\ntfplace: press Ctrl-C to end", err=True)
    webbrowser.open(address)
