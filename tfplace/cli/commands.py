"""The commands: what each takes. What they do is imported when they run, since pandas takes 0.3 s to import."""

from __future__ import annotations

from typing import Any

import click

from tfplace.cli.options import (
    accelerator_option,
    bus_option,
    debug_option,
    force_option,
    kernels_option,
    output_option,
    step_option,
    traces_argument,
)
from tfplace.cli.run_options import record, simulate


@click.command(short_help="Say what is where, what crosses the bus, what to change.")
@traces_argument()
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="json is a stable contract: docs/report-json.md.",
)
@output_option
@force_option
@click.option("--all", "show_all", is_flag=True, help="Show all findings, and all rows in a terminal.")
@accelerator_option
@step_option
@bus_option
@kernels_option
@debug_option
def report(**options: Any) -> None:
    """Say what is where, what crosses the bus in a step, what it costs, and what to change.

    TRACE is a RunMetadata, StepStats or GraphDef file (text, binary or JSON, also gzipped), or a folder of them;
    '-' reads standard input. Several files are several steps.

    \b
    tfplace report trace.pbtxt
    tfplace report trace.pbtxt --format json -o report.json
    """
    from tfplace.cli.work import run_report  # noqa: PLC0415

    run_report(**options)


@click.command(short_help="Draw what moved, when, and who waited, for Perfetto and chrome://tracing.")
@traces_argument()
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write there: JSON, or Perfetto's own format where it ends in .pftrace; .gz after it compresses, '-' is "
    "standard output. Needed unless --open is given.",
)
@force_option
@click.option("--steps", metavar="A:B", help="Draw these steps only: A:B, both included; A: or :B or one number.")
@click.option(
    "--max-events",
    type=click.IntRange(min=1),
    default=500_000,
    show_default=True,
    metavar="N",
    help="Above it, draw whole steps and all transfers, and say what is left out.",
)
@click.option("--all", "draw_all", is_flag=True, help="Draw everything, however much a viewer may groan.")
@accelerator_option
@click.option("--open", "open_viewer", is_flag=True, help="Show it in Perfetto, served on this machine only.")
@debug_option
def timeline(**options: Any) -> None:
    """Draw what moved, when, and who waited, for Perfetto and chrome://tracing.

    Each device is a process: host threads or launches, then copies by direction, then compute streams. Copies are
    named after their tensor or variable, with arrows from the producer and to the consumers.

    \b
    tfplace timeline trace.pbtxt -o timeline.json.gz
    """
    from tfplace.cli.timeline import run_timeline  # noqa: PLC0415

    run_timeline(**options)


@click.command(short_help="Print one table of a trace.")
@traces_argument(required=False)
@click.argument("table", metavar="TABLE", required=False)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "csv", "json"]),
    default="text",
    show_default=True,
    help="csv and json hold the exact values.",
)
@output_option
@force_option
@accelerator_option
@step_option
@bus_option
@kernels_option
@debug_option
def show(**options: Any) -> None:
    """Print one table of a trace.

    TABLE is one of: devices, nodes, edges, outputs, events, copies, memory, steps (as read), transfers, variables,
    reasons (worked out: reasons says why each host node is on the host), findings.

    \b
    tfplace show trace.pbtxt transfers --format csv
    """
    from tfplace.cli.show import run_show  # noqa: PLC0415

    run_show(**options)


@click.command(short_help="List the rules, or explain one.")
@click.argument("rule", metavar="[RULE]", required=False)
@debug_option
def rules(**options: Any) -> None:
    """List the rules, or explain one: what it finds and the thresholds it compares with.

    \b
    tfplace rules variable-on-cpu
    """
    from tfplace.cli.explain import run_rules_command  # noqa: PLC0415

    run_rules_command(**options)


@click.command(short_help="Say what a trace holds, without analyzing it.")
@traces_argument()
@click.option(
    "--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to print."
)
@accelerator_option
@debug_option
def info(**options: Any) -> None:
    """Say what a trace holds: format, devices, steps, counts. Nothing is analyzed.

    \b
    tfplace info trace.pbtxt
    """
    from tfplace.cli.info import run_info  # noqa: PLC0415

    run_info(**options)


COMMANDS = {
    "report": report,
    "record": record,
    "simulate": simulate,
    "timeline": timeline,
    "show": show,
    "info": info,
    "rules": rules,
}
