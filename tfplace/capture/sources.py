"""The user's own line: where a variable was made, and where an op was written.

A line is the innermost frame that is neither TensorFlow's, Keras', the standard library's nor ours.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from tfplace.capture import guard
from tfplace.capture.after_import import after_import
from tfplace.capture.tf_api import tensorflow

MOST_VARIABLES = 200_000  # a program that makes variables for ever must not grow for ever
MOST_FRAMES = 200
_LIBRARIES = ("tensorflow", "keras", "tf_keras", "tensorflow_probability", "tensorflow_estimator", "wrapt")
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_GENERATED = "__autograph_generated_file"


class Creation(NamedTuple):
    """What was seen when a variable was made."""

    source: str | None
    requested_device: str


_creations: dict[int, Creation] = {}
_watching = threading.Lock()


@lru_cache(maxsize=1)
def _library_folders() -> tuple[str, ...]:
    folders = [_OWN]
    for name in _LIBRARIES:
        module = sys.modules.get(name)
        for folder in getattr(module, "__path__", ()) or ():
            folders.append(os.path.join(str(folder), ""))
    folders.append(os.path.join(sysconfig.get_path("stdlib"), ""))
    return tuple(dict.fromkeys(folders))


@lru_cache(maxsize=65536)
def is_library(filename: str) -> bool:
    """Tell whether code of this file is a library's, so that its line tells the user nothing."""
    if filename.startswith("<"):
        return True
    # site-packages lies inside the standard library's folder and may hold the user's own package
    if "site-packages" in filename or "dist-packages" in filename:
        return filename.startswith(tuple(one for one in _library_folders() if "-packages" in one or one == _OWN))
    return filename.startswith(_library_folders())


@lru_cache(maxsize=65536)
def short_path(filename: str) -> str:
    """Return the path as a report shows it: relative where it is below the current folder."""
    try:
        folder = os.path.join(os.getcwd(), "")
    except OSError:  # the current folder was removed
        return filename
    full = os.path.abspath(filename)
    return full[len(folder) :] if full.startswith(folder) else full


def line_of(frames: Iterable[Any]) -> str | None:
    """Return 'train.py:41' for the last frame of a traceback (oldest first) that is the user's; null if none is."""
    for frame in reversed(list(frames)):
        filename = frame.filename
        if not is_library(filename) and _GENERATED not in filename:
            return f"{short_path(filename)}:{frame.lineno}"
    return None


def hidden_frames() -> Any:
    """Return a context manager in which the tracebacks that TensorFlow stores with ops leave out our own frames."""
    return _own_frame_filter()()


@lru_cache(maxsize=1)
def _own_frame_filter() -> Any:
    base: Any = tensorflow().tf_stack.StackTraceFilter
    files = frozenset(_OWN + name for name in ("decorator.py", "funnel.py", "sources.py"))

    class OwnFrameFilter(base):  # type: ignore[misc]
        """Our part of the files that TensorFlow leaves out, beside those of whoever filters around us."""

        def get_filtered_filenames(self) -> frozenset[str]:
            return files | frozenset(self.parent.get_filtered_filenames())

    return OwnFrameFilter


def calling_line() -> str | None:
    """Return the user's line that (indirectly) called; about 20 us, more inside autograph's generated code."""
    frame: Any = sys._getframe(1)
    for _ in range(MOST_FRAMES):
        if frame is None:
            return None
        filename = frame.f_code.co_filename
        if _GENERATED in filename:
            # only TensorFlow can map generated code back to the user's file
            return line_of(tensorflow().tf_stack.extract_stack(1))
        if not is_library(filename):
            return f"{short_path(filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def watch_variables() -> None:
    """Note from now on where each variable is made; costs about 20 us per variable and nothing per step."""
    if guard.is_disabled():
        return
    variable_class = tensorflow().resource_variables.BaseResourceVariable
    with _watching:
        if not hasattr(variable_class.__init__, "tfplace_original"):
            variable_class.__init__ = _noting(variable_class.__init__)


def _noting(original: Any) -> Any:
    @functools.wraps(original)
    def tfplace_init(self: Any, *args: Any, **kwargs: Any) -> None:
        with hidden_frames():
            original(self, *args, **kwargs)
        try:
            note_creation(self)
        except Exception as error:
            if guard.is_strict():
                raise
            guard.warn(f"a variable's line is not known ({error}).", once="variable line")

    tfplace_init.tfplace_original = original  # type: ignore[attr-defined]
    return tfplace_init


def watch_if_loaded() -> None:
    """Watch variables if the program has imported TensorFlow already; never raises."""
    if "tensorflow" in sys.modules and not guard.is_disabled():
        try:
            watch_variables()
        except Exception as error:
            if guard.is_strict():
                raise
            guard.warn(f"variables will have no source line ({error}).", once="variable lines")


def watch_when_loaded() -> None:
    """Watch variables from the moment that the program imports TensorFlow; never raises.

    For `import tfplace` itself: most programs make their variables before they reach the decorated step.
    """
    if not guard.is_disabled():
        after_import("tensorflow", watch_if_loaded)


def note_creation(variable: Any) -> None:
    """Keep line and requested device of a variable just made; handles outside eager mode are told by the graph."""
    handle_id = getattr(getattr(variable, "_handle", None), "_id", None)
    if not isinstance(handle_id, int) or handle_id in _creations or len(_creations) >= MOST_VARIABLES:
        return
    if type(variable).__name__ == "_UnreadVariable":
        return
    tf = tensorflow()
    # inside a function being traced the variable is lifted out: the innermost graph's device was asked for
    requested = tf.eager_context.device_name or ""
    _creations[handle_id] = Creation(calling_line(), requested)


def creation_of(handle_id: int) -> Creation | None:
    """Return what was seen when the variable with this handle was made."""
    return _creations.get(handle_id)
