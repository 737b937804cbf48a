"""The commands that run a program: `record` and `simulate`."""

from __future__ import annotations

from typing import Any

import click

from tfplace.cli.options import Decorated, bus_option, debug_option

_AS_GIVEN = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def _program_options(command: Decorated) -> Decorated:
    """Add what both commands take; the program's own words stay as they are."""
    for option in (
        click.argument("program", metavar="[-m] PROGRAM [ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED),
        debug_option,
        bus_option,
        click.option("--no-jit", is_flag=True, help="Turn XLA off in the program: inside it no op can be seen."),
        click.option("--report/--no-report", "with_report", default=True, help="Print the report.  [default: print]"),
        click.option("--steps", default=3, show_default=True, metavar="N", help="Steps to time."),
        click.option("--skip", default=2, show_default=True, metavar="N", help="Calls of the step before those."),
        click.option("--step", metavar="NAME", help="Function to take as the step; left out, it is found."),
        click.option("--force", is_flag=True, help="Overwrite TRACE if it exists."),
        click.option("-o", "--output", default="trace.pb", show_default=True, metavar="TRACE", help="Trace to write."),
        click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as for python -m."),
    ):
        command = option(command)
    return command


@click.command(short_help="Run a program and capture its training step.", context_settings=_AS_GIVEN)
@click.option("--accelerator", metavar="DEVICE", help="Logical CPU device that plays the accelerator: CPU:1.")
@_program_options
@click.pass_context
def record(context: click.Context, /, **options: Any) -> None:
    """Run an unedited script or module, capture its training step, and report on it.

    The step is found: the tf.function or Session.run with most nodes that repeats. Output, arguments, exit code and
    errors of the program pass through untouched. Where it succeeds but ran no such step, the exit code is 2.

    \b
    tfplace record -o trace.pb train.py --epochs 1
    """
    from tfplace.cli.run import run_record  # noqa: PLC0415

    context.exit(run_record(**options))


@click.command(short_help="The same on GPUs that are not there.", context_settings=_AS_GIVEN)
@click.option("--gpus", default=1, show_default=True, metavar="N", help="Simulated GPUs.")
@click.option("--gpu-memory", default="16GB", show_default=True, metavar="SIZE", help="Memory of each.")
@click.option("--force-simulate", is_flag=True, help="Simulate although a real GPU is visible.")
@click.option("--coverage", is_flag=True, help="List the ops that cannot run on a simulated GPU, and stop.")
@_program_options
@click.pass_context
def simulate(context: click.Context, /, **options: Any) -> None:
    """Run an unedited script or module on simulated GPUs, capture its training step, and report on it.

    TensorFlow's own runtime places, partitions and copies; placement, counts and bytes are real, times are not a
    GPU's. Needs Linux, g++ and the CUDA-built TensorFlow wheel; no GPU.

    \b
    tfplace simulate --gpus 2 train.py --epochs 1
    """
    from tfplace.cli.run import run_simulate  # noqa: PLC0415

    context.exit(run_simulate(**options))
