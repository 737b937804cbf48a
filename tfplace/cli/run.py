"""`tfplace record` and `tfplace simulate`: run a program in a process of its own, capture its step, report on it."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tfplace.capture.schedule import Options
from tfplace.errors import OutputError, UsageError
from tfplace.report.output import check_output

NO_TRACE = 2
"""Exit code where the program succeeded but left no trace: the exit code of all that a user can put right."""

_CUT_SHORT = "the program ended before it could be (killed, os._exit, or another program took its place)."
_OFTEN_LATE = frozenset(
    ("-o", "--output", "--force", "--bus-gbps", "--gpus", "--gpu-memory", "--no-jit", "--step", "--no-report")
)
_KILLED = 128  # a shell's way to say 'ended by signal N': 128 + N


@dataclass(frozen=True)
class Run:
    """What to run, and what to do with its trace.

    Attributes:
        program: Script or module, then its own arguments.
        output: Trace to write.
        force: Overwrite it.
        with_report: Print the report.
        bus_gbps: Bus speed that the report's estimates rest on; null = its default.
        options: Keyword arguments of `tfplace.capture.runner.record`.
    """

    program: Sequence[str]
    output: str
    force: bool
    with_report: bool
    bus_gbps: float | None
    options: Mapping[str, Any]

    def check(self) -> None:
        """Find out what cannot work before anything starts.

        Raises:
            UsageError: No program is named.
            OutputError: The trace cannot be written there.
        """
        if not self.program:
            raise UsageError(
                "No program was named.", "Write the script and its arguments last, or -m MODULE ARGUMENTS."
            )
        if not self.options.get("module"):
            _check_script(self.program[0])
        asked = {name: self.options.get(name) for name in ("skip", "steps", "accelerator")}
        Options(path=self.output, **asked)  # type: ignore[arg-type]  # it checks what it is given
        try:
            check_output(self.output, self.force)
        except OutputError as error:
            raise OutputError(error.message, " ".join(filter(None, (error.hint, self.passed_on())))) from error

    def passed_on(self) -> str:
        """Say which options that tfplace knows stand after the program, and so went to it; '' where none do."""
        late = [word for word in self.program[1:] if word in _OFTEN_LATE]
        return f"{late[0]} stands after the program and goes to it: tfplace's own options come before." if late else ""


def _check_script(name: str) -> None:
    """Refuse what is no Python program.

    Raises:
        UsageError: It is a misspelt option, no file, or a trace.
    """
    if name.startswith("-"):
        context = click.get_current_context(silent=True)
        known = [word for one in context.command.params for word in one.opts] if context else []
        raise click.NoSuchOption(name, possibilities=difflib.get_close_matches(name, known), ctx=context)
    if not Path(name).is_file():
        raise UsageError(f"{name} is not a file.", "Name the script to run, or write -m MODULE.")
    with contextlib.suppress(OSError), Path(name).open("rb") as script:
        if b"\0" in script.read(1 << 16):
            raise UsageError(f"{name} is no Python program.", "Name the script to run; `tfplace report` reads traces.")


def run_record(**words: Any) -> int:
    """Carry out `tfplace record`; returns the program's exit code, or `NO_TRACE`."""
    run = _run_of(words)
    run.check()
    if importlib.util.find_spec("tensorflow") is None:
        raise UsageError(f"TensorFlow is not installed for {sys.executable}.", "Install it where the program runs.")
    return _carry_out(run, {})


def run_simulate(*, gpus: int, gpu_memory: str, force_simulate: bool, coverage: bool, **words: Any) -> int:
    """Carry out `tfplace simulate`; returns the program's exit code, or `NO_TRACE`; 0 for --coverage."""
    if coverage:
        return _list_uncovered()
    run = _run_of(words)
    run.check()
    from tfplace.simulate import environment  # noqa: PLC0415 - finds the wheel, may compile

    return _carry_out(run, environment(gpus, gpu_memory, force=force_simulate))


def _run_of(words: dict[str, Any]) -> Run:
    """Split what the command was given into what is ours and what capture is to know."""
    own = ("program", "output", "force", "with_report", "bus_gbps")
    return Run(**{name: words[name] for name in own}, options={k: v for k, v in words.items() if k not in own})


def _list_uncovered() -> int:
    from tfplace.simulate import list_uncovered_ops  # noqa: PLC0415 - imports TensorFlow

    ops = list_uncovered_ops()
    click.echo(
        f"{len(ops)} ops have a GPU kernel that no CPU kernel can stand in for; where only some types are listed,"
    )
    click.echo("the others run. A program that meets one stops with the op's name and a cure.")
    for op in ops:
        types = "all types" if op.complete else ", ".join(sorted(set(op.types)))
        click.echo(f"  {op.op}: {types}")
    return 0


def _carry_out(run: Run, variables: Mapping[str, str]) -> int:
    path = Path(run.output)
    before = _stamp(path)
    with tempfile.TemporaryDirectory(prefix="tfplace-") as folder:
        told = Path(folder) / "reason"
        options = {"path": run.output, **run.options, "reason_to": str(told)}
        command = [sys.executable, "-m", "tfplace.capture", json.dumps(options), *run.program]
        code = _wait(subprocess.Popen(command, env={**os.environ, **variables}))
        reason = told.read_text(encoding="utf-8") if told.exists() else _CUT_SHORT
    if _stamp(path) == before:
        return _without_trace(code, reason)
    passed_on = run.passed_on()
    click.echo(f"tfplace: wrote {run.output}" + (f" ({passed_on.rstrip('.')})" if passed_on else ""), err=True)
    if run.with_report:
        from tfplace.cli.work import run_report  # noqa: PLC0415 - pandas, after the program

        run_report(
            traces=[run.output],
            format_="text",
            output="-",
            force=False,
            show_all=False,
            accelerator=None,
            steps=(),
            bus_gbps=run.bus_gbps,
            kernels_from="shipped",
        )
    return code


def _without_trace(code: int, reason: str) -> int:
    """Say that there is no trace. A program's own failure stays what it was; else a missing trace is the failure.

    Whoever switched capture off asked for no trace: then the program's success stays one.
    """
    failed = code == 0 and os.environ.get("TFPLACE_DISABLE", "") in ("", "0")
    click.echo(f"tfplace: {'error: ' if failed else ''}no trace was written: {reason}", err=True)
    return NO_TRACE if failed else code


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what tells one writing of a file from another; null where there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Return the program's exit code. Ctrl-C goes to the program, which decides what it means."""
    own = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGINT, own)
    return _KILLED - code if code < 0 else code
