"""The command line: results on stdout, talk on stderr.

Exit codes: 0 fine, 2 usage or unreadable input, 3 a fault of tfplace's own, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import sys
import traceback
from collections.abc import Sequence

import click

from tfplace.cli.commands import COMMANDS
from tfplace.cli.options import debug_option, wants_traceback
from tfplace.errors import TfplaceError
from tfplace.names import printable
from tfplace.version import __version__

_MAX_MESSAGE = 1000
FINE, BAD_INPUT, OWN_FAULT, INTERRUPTED = 0, 2, 3, 130


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which people need them."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> None:
        """Run a command; a reader of stdout that has gone (`| head`) is no error."""
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            from tfplace.report.output import abandon_stdout  # noqa: PLC0415 - it would slow down every start

            abandon_stdout()
            ctx.exit(FINE)
        except OSError as error:
            if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
            from tfplace.report.output import abandon_stdout, stdout_error  # noqa: PLC0415 - as above

            abandon_stdout()
            raise stdout_error(error) from error


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    commands=COMMANDS,
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="tfplace")
@debug_option
@click.pass_context
def cli(context: click.Context) -> None:
    """Show where TensorFlow puts ops and variables, what crosses the bus, and what to change.

    \b
    tfplace report trace.pbtxt
    """
    if context.invoked_subcommand is None:  # click's versions disagree on what follows from no command
        click.echo(context.get_help(), err=True)
        context.exit(BAD_INPUT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; raises nothing."""
    _tolerate_odd_characters()
    gc.set_threshold(100_000, 20, 20)  # importing pandas makes many objects and no garbage: saves a tenth of that time
    try:
        result = cli.main(args=arguments, prog_name="tfplace", standalone_mode=False)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else BAD_INPUT
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:
        return _explain(error)
    return result if isinstance(result, int) else FINE


def _explain(error: Exception) -> int:
    """Say what went wrong in one line and return the exit code."""
    if wants_traceback() and not isinstance(error, click.ClickException):
        traceback.print_exception(error)
    if isinstance(error, click.ClickException):
        _refuse(error.format_message(), _usage_hint(error))
    elif isinstance(error, TfplaceError):
        _refuse(error.message, error.hint)
    else:
        _apologize(error)
        return OWN_FAULT
    return BAD_INPUT


def _refuse(message: str, hint: str) -> None:
    text = " ".join(" ".join(filter(None, (message, hint))).split())
    _say(f"tfplace: error: {printable(text, _MAX_MESSAGE)}")


def _usage_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "tfplace"
    return f"Try '{command} -h'."


def _apologize(error: Exception) -> None:
    name = printable(f"{type(error).__name__}: {error}".rstrip(": ."), _MAX_MESSAGE)
    _say(
        f"tfplace: sorry, a fault of tfplace's own: {name}. "
        "Run it again with --traceback (or TFPLACE_DEBUG=1) to see where, and please report it with the trace."
    )


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # stderr may be closed
        print(text, file=sys.stderr, flush=True)


def _tolerate_odd_characters() -> None:
    """A name that stdout's encoding lacks is written escaped, never an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
