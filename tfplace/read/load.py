"""Paths as people give them, files, folders or '-', to one Trace."""

from __future__ import annotations

import dataclasses
import gc
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tfplace.errors import TfplaceError, UnreadableTraceError, UnsupportedFormatError, UsageError
from tfplace.model.trace import Note, Trace
from tfplace.names import printable
from tfplace.read.raw import RawTrace
from tfplace.read.run_metadata import read_raw
from tfplace.read.tables.normalize import normalize

Progress = Callable[[int, int], None]


def load_trace(paths: Sequence[str], accelerator: str | None = None, progress: Progress | None = None) -> Trace:
    """Read traces; several files, or a folder of them, are several steps in the order given.

    Args:
        paths: Files, folders (their files in natural order: step_2 before step_10), or '-' for standard input.
        accelerator: CPU devices to treat as accelerators: 'CPU:1', or several with commas.
        progress: Called as progress(done, total) in bytes while a large file is read.

    Raises:
        UnreadableTraceError: A path cannot be read, a file is damaged beyond use, or a folder holds no trace.
        UnsupportedFormatError: A file is not a trace that tfplace reads.
        UsageError: No path was given, '-' was given twice, or the accelerator is not in the trace.
    """
    if not paths:
        raise UsageError("No trace was given.", "Name a file, a folder, or - for standard input.")
    if list(paths).count("-") > 1:
        raise UsageError("Standard input can be read only once.", "Give - once.")
    collecting = gc.isenabled()
    gc.disable()  # millions of rows and no cycles among them: looking for some doubles the time
    try:
        raws: list[RawTrace] = []
        for path in paths:
            if path != "-" and Path(path).is_dir():
                raws.extend(_read_folder(path, progress))
            else:
                raws.append(_read_file(path, progress))
        return normalize(raws, accelerator)
    finally:
        if collecting:
            gc.enable()


def _read_file(path: str, progress: Progress | None) -> RawTrace:
    try:
        return read_raw(path, progress)
    except TfplaceError as error:
        name = "standard input" if path == "-" else path
        if path in error.message or name in error.message or printable(path) in error.message:
            raise
        raise type(error)(f"{printable(name)}: {error.message}", error.hint) from error


def _read_folder(path: str, progress: Progress | None) -> list[RawTrace]:
    """Read the traces in a folder; files of other kinds are passed over with a note, damaged traces are not."""
    try:
        files = sorted((f for f in Path(path).iterdir() if f.is_file() and not f.name.startswith(".")), key=_natural)
    except OSError as error:
        raise UnreadableTraceError(f"{printable(path)} cannot be read: {error.strerror}.") from error
    raws, skipped = [], []
    for file in files:
        try:
            raws.append(_read_file(str(file), progress))
        except UnsupportedFormatError:
            skipped.append(file.name)
    if not raws:
        held = f"none of its {len(files)} files is a trace that tfplace reads" if files else "it holds no files"
        raise UnreadableTraceError(
            f"The folder {printable(path)} has no trace: {held}.", "Name the trace files, or the folder they are in."
        )
    if skipped:
        shown = ", ".join(printable(name, 60) for name in skipped[:3]) + (" ..." if len(skipped) > 3 else "")
        note = Note("files-skipped", f"{len(skipped)} files of {printable(path)} are no traces: {shown}", len(skipped))
        raws[0] = dataclasses.replace(raws[0], notes=[*raws[0].notes, note])
    return raws


def _natural(file: Path) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key in which step_2 comes before step_10."""
    parts = re.split(r"(\d+)", file.name)
    return tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts)
