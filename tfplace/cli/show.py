"""`tfplace show`: one table, as text, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from tfplace.analyze.analysis import Analysis
from tfplace.analyze.study import analyze
from tfplace.cli.options import TABLES
from tfplace.cli.work import chosen_kernels, limits, read_trace
from tfplace.diagnose.rule import run_rules
from tfplace.diagnose.rules import ALL_RULES, order_findings
from tfplace.diagnose.thresholds import Thresholds
from tfplace.errors import UsageError
from tfplace.model import schema
from tfplace.report.json_report import finding_document
from tfplace.report.output import STDOUT, check_output, write_output
from tfplace.report.plain import align
from tfplace.report.values import compact, records
from tfplace.report.wording import safe

Rows = list[dict[str, Any]]

_WORKED_OUT = ("transfers", "variables", "reasons", "findings")
_FINDING_COLUMNS = ("rule", "severity", "title", "detail", "fix", "evidence", "cost_us_per_step", "bytes_per_step",
                    "confidence", "cost_basis", "subjects")  # fmt: skip
_REASON_COLUMNS = ("node_id", "reason", "detail", "harmless")


def run_show(
    *,
    traces: Sequence[str],
    table: str | None,
    format_: str,
    output: str,
    force: bool,
    accelerator: str | None,
    steps: Sequence[int],
    bus_gbps: float | None,
    kernels_from: str,
) -> None:
    """Carry out `tfplace show`."""
    if table not in TABLES:
        problem = f"there is no table {table!r}." if traces else "show needs a trace and a table."
        raise UsageError(problem, f"Tables: {', '.join(TABLES)}. Example: tfplace show trace.pbtxt transfers.")
    if not traces:
        raise UsageError("show needs a trace before the table.", f"Example: tfplace show trace.pbtxt {table}.")
    check_output(output, force)
    trace = read_trace(traces, accelerator, steps)
    if table in _WORKED_OUT:
        analysis = analyze(trace, kernels=chosen_kernels(trace, kernels_from))
        columns, rows = _worked_out(analysis, table, limits(bus_gbps))
    else:
        columns, rows = [column.name for column in schema.TABLES[table]], records(trace.table(table))
    for_terminal = output == STDOUT and sys.stdout.isatty()
    write_output(render_rows(columns, rows, format_, for_terminal), output, force)
    if output != STDOUT:
        click.echo(f"tfplace: wrote {output}", err=True)


def _worked_out(analysis: Analysis, table: str, thresholds: Thresholds) -> tuple[list[str], Rows]:
    if table == "findings":
        outcomes = run_rules(ALL_RULES, analysis, thresholds)
        return list(_FINDING_COLUMNS), [finding_document(finding) for finding in order_findings(outcomes)]
    if table == "reasons":
        return list(_REASON_COLUMNS), records(analysis.reasons[list(_REASON_COLUMNS)])
    frame = analysis.transfers if table == "transfers" else analysis.variables
    return [column.name for column in schema.TABLES[table]], records(frame)


def render_rows(columns: Sequence[str], rows: Rows, format_: str, for_terminal: bool = False) -> str:
    """Return rows as text, CSV (with a heading; null is empty; lists are JSON) or JSON (a list of objects).

    CSV keeps names exactly as they are, except in a terminal, where control characters could do harm.
    """
    if format_ == "json":
        lines = [json.dumps(row, ensure_ascii=True, allow_nan=False) for row in rows]
        return "[" + ",".join(f"\n {line}" for line in lines) + "\n]\n"
    cells = [[compact(row[column]) for column in columns] for row in rows]
    if format_ == "csv":
        return _csv(columns, [[safe(cell) for cell in row] for row in cells] if for_terminal else cells)
    numeric = [_is_numeric([row[column] for row in rows]) for column in columns]
    return "\n".join(align(columns, cells, numeric)) + "\n"


def _csv(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(cells)
    return buffer.getvalue()


def _is_numeric(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known)
