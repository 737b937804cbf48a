"""Options and arguments that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

TABLES = (
    *("devices", "nodes", "edges", "outputs", "events", "copies", "memory", "steps"),
    *("transfers", "variables", "reasons", "findings"),
)
"""Tables that `tfplace show` prints."""


def wants_traceback() -> bool:
    """Tell whether --traceback was given or TFPLACE_DEBUG is set."""
    return os.environ.get("TFPLACE_DEBUG", "0") not in ("", "0")


def _remember(_context: click.Context, _parameter: click.Parameter, value: bool) -> bool:
    if value:
        os.environ["TFPLACE_DEBUG"] = "1"
    return value


debug_option = click.option(
    "--traceback",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_remember,
    help="Show where an error came from (or set TFPLACE_DEBUG=1).",
)

accelerator_option = click.option(
    "--accelerator",
    metavar="DEVICE",
    help="Treat this logical CPU device as the accelerator: CPU:1, or several: CPU:1,CPU:2.",
)

step_option = click.option(
    "--step",
    "steps",
    type=int,
    multiple=True,
    metavar="N",
    help="Look at this step only; may be given several times. `tfplace info` lists the steps.",
)

bus_option = click.option(
    "--bus-gbps",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GB/S",
    help="Bus speed that estimates rest on, where the trace has no times.  [default: 12]",
)

kernels_option = click.option(
    "--kernels-from",
    type=click.Choice(["shipped", "tensorflow"]),
    default="shipped",
    show_default=True,
    help="Who says which ops have GPU kernels, where the trace does not: the table shipped with tfplace, "
    "or the TensorFlow installed here (slow: imports it).",
)

output_option = click.option(
    "-o", "--output", default="-", metavar="FILE", help="Write there instead of to standard output ('-')."
)

force_option = click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")


def traces_argument(required: bool = True) -> Callable[[Decorated], Decorated]:
    """Return the TRACE... argument."""
    return click.argument("traces", metavar="TRACE...", nargs=-1, required=required)
