"""`tfplace record`: run an unedited script or module with its training step captured."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tfplace.capture import guard
from tfplace.capture.absence import explain
from tfplace.capture.after_import import after_import, forget
from tfplace.capture.jit import forbid_jit
from tfplace.capture.schedule import DEFAULT_PATH, Options
from tfplace.errors import UsageError


class Watch:
    """Both finders of a recorded program: compiled functions, and runs of v1 Sessions."""

    def __init__(self, options: Options, step: str | None) -> None:
        self._options = options
        self._step = step
        self._guard = guard.Guard()
        self._finders: list[Any] = []
        self._before = _stamp(options.path)
        self._pid = os.getpid()

    def start(self) -> None:
        """Begin to watch; TensorFlow is imported."""
        self._guard.run("start", self._start)

    def _start(self) -> None:
        from tfplace.capture.finder import StepFinder  # noqa: PLC0415 (these import TensorFlow)
        from tfplace.capture.session_finder import SessionFinder  # noqa: PLC0415

        functions = StepFinder(self._options, self._step)
        sessions = SessionFinder(self._options, self._step, functions)
        self._finders = [sessions, functions]
        functions.start()
        sessions.start()

    def finish(self) -> str | None:
        """The program is over: write what was found. Return why there is no trace; null where there is one."""
        finders, self._finders = self._finders, []
        for finder in finders:
            self._guard.run("finish", finder.finish)
        if os.getpid() != self._pid or _stamp(self._options.path) != self._before:
            return None
        if guard.is_disabled():
            return "TFPLACE_DISABLE is set."
        if not finders:
            return "the program did not import TensorFlow. Name the script that trains."
        sessions, functions = finders
        reason: str | None = self._guard.run("finish", explain, functions, sessions, self._step)
        return reason


def _stamp(path: str) -> tuple[int, int] | None:
    """Return what tells one writing of a file from another; null where there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def record(
    target: str,
    arguments: Sequence[str] = (),
    *,
    module: bool = False,
    path: str = DEFAULT_PATH,
    step: str | None = None,
    skip: int = 2,
    steps: int = 3,
    xplane: bool = False,
    accelerator: str | None = None,
    no_jit: bool = False,
    reason_to: str | None = None,
) -> None:
    """Run a script or module as `python SCRIPT ARGUMENTS` would, and capture its training step.

    Whatever the program raises, `SystemExit` included, goes on to the caller after the trace is written.

    Args:
        target: Script, or with `module` the name after `python -m`.
        arguments: The program's own arguments.
        module: `target` is a module.
        path: Trace file to write; .pb or .pbtxt, either with .gz.
        step: Name of the function to take as the step (for a v1 Session: of a fetched node); null = find it.
        skip: Calls of the step before the first timed one.
        steps: Steps to time.
        xplane: Also write the profiler's own data.
        accelerator: 'CPU:1': the logical CPU device that plays the accelerator.
        no_jit: Turn XLA off in the program, so that its ops can be seen.
        reason_to: File in which to say why no trace was written; null = warn.

    Raises:
        UsageError, OutputError: There is no such script; the trace cannot be written there.
    """
    options = replace(
        Options(path, skip=skip, steps=steps, xplane=xplane, accelerator=accelerator),
        made_by="record",
        path=os.path.abspath(path),  # the program may change the current folder
    )
    if not module and not os.path.isfile(target):
        raise UsageError(f"{target} is not a file.", "Name the script to run, or write -m MODULE.")
    if no_jit:
        forbid_jit()
    watch = Watch(options, step)
    if not guard.is_disabled():
        after_import("tensorflow", watch.start)
    saved_argv, saved_path = sys.argv[:], sys.path[:]
    sys.argv = [target, *arguments]
    try:
        if module:
            sys.path[0] = os.getcwd()
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(target))
            runpy.run_path(target, run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:
        raise error.with_traceback(_from_script(error.__traceback__)) from error.__cause__
    finally:
        _tell(watch.finish(), reason_to)
        sys.argv, sys.path[:] = saved_argv, saved_path
        forget("tensorflow", watch.start)


def _tell(reason: str | None, reason_to: str | None) -> None:
    if reason is None:
        return
    if reason_to is None:
        guard.warn(f"no trace was written: {reason}")
        return
    try:
        with open(reason_to, "w", encoding="utf-8") as file:
            file.write(reason)
    except OSError:
        guard.warn(f"no trace was written: {reason}")


def _from_script(traceback: Any) -> Any:
    """Return the traceback without the frames that led to the script."""
    own = {__file__, runpy.__file__, "<frozen runpy>"}
    while traceback is not None and traceback.tb_frame.f_code.co_filename in own and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback
