"""The one place that writes a result: to a file, whole or not at all, or to stdout."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from tfplace.errors import OutputError

STDOUT = "-"

_HINTS = {
    errno.ENOENT: "Make its folder first, or choose another with -o.",
    errno.ENOTDIR: "A part of that path is a file; choose another with -o.",
    errno.EACCES: "Choose a folder that you may write to with -o.",
    errno.EPERM: "Choose a folder that you may write to with -o.",
    errno.EROFS: "The disk is read-only; choose another place with -o.",
    errno.ENOSPC: "The disk is full; nothing was written.",
    errno.EDQUOT: "Your disk quota is used up; nothing was written.",
    errno.ENAMETOOLONG: "Choose a shorter name with -o.",
}


def abandon_stdout() -> None:
    """Let what is still buffered for stdout vanish: it would fail again when Python closes it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def stdout_error(error: OSError) -> OutputError:
    """Return what to say where stdout itself cannot be written, as on a full disk."""
    return _cannot_write("standard output", error)


def check_output(path: str, force: bool = False) -> None:
    """Refuse early what `write_output` would refuse later, before a long reading.

    Raises:
        OutputError: `path` exists and `force` is false, is a folder, or its folder is missing or closed to writing.
    """
    if path == STDOUT:
        return
    target = Path(path)
    try:
        kind = target.stat().st_mode
    except FileNotFoundError:
        folder = target.parent
        if not folder.is_dir():
            raise OutputError(
                f"cannot write {path}: the folder {folder} does not exist.", _HINTS[errno.ENOENT]
            ) from None
        if not os.access(folder, os.W_OK):
            raise OutputError(f"cannot write {path}: no permission in {folder}.", _HINTS[errno.EACCES]) from None
        return
    except (OSError, ValueError) as error:
        raise _cannot_write(path, error) from error
    if stat.S_ISDIR(kind):
        raise OutputError(f"cannot write {path}: it is a folder.", "Name a file with -o.")
    if stat.S_ISREG(kind) and not force:
        raise OutputError(f"{path} exists already.", "Name another with -o, or add --force to overwrite it.")


def write_output(text: str, path: str, force: bool = False) -> None:
    """Write `text` as UTF-8 to the file `path`, or to stdout where path is '-'.

    A file appears under its name only when it is complete: it is written beside its place first and then renamed.
    Devices and pipes are written directly. A text without a last line end gets one.

    Raises:
        OutputError: The file exists and `force` is false, or it cannot be written; nothing is left behind.
        BrokenPipeError: The reader of stdout has gone.
    """
    if not text.endswith("\n"):
        text += "\n"
    if path == STDOUT:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    data = text.encode("utf-8", errors="backslashreplace")

    def write(out: BinaryIO) -> None:
        out.write(data)

    stream_output(write, path, force)


def stream_output(write: Callable[[BinaryIO], None], path: str, force: bool = False) -> None:
    """Let `write` fill the file `path`, or stdout where path is '-', piece by piece; the rest as in `write_output`.

    Raises:
        OutputError: The file exists and `force` is false, or it cannot be written; nothing is left behind.
        BrokenPipeError: The reader of stdout has gone.
    """
    if path == STDOUT:
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    check_output(path, force)
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            with target.open("wb") as out:  # /dev/null, a named pipe
                write(out)
        else:
            _write_and_rename(write, target)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _write_and_rename(write: Callable[[BinaryIO], None], target: Path) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".tfplace-", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(_mode_for(target))
        Path(temporary).replace(target)
    except BaseException:  # Ctrl-C included: no half file stays
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def _mode_for(target: Path) -> int:
    """Return the permissions of the file that is replaced, else those that a new file gets here."""
    with contextlib.suppress(OSError):
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _cannot_write(path: str, error: OSError | ValueError) -> OutputError:
    if isinstance(error, ValueError):  # a null byte in the name
        return OutputError(f"cannot write {path!r}: not a file name.", "Choose another with -o.")
    return OutputError(f"cannot write {path}: {error.strerror}.", _HINTS.get(error.errno or 0, ""))
