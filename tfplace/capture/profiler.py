"""TensorFlow's profiler for the length of some steps, without getting in the user's way.

There is one profiler per process. If the user's is on, ours stays off; if the user starts one while ours
is on, ours ends first.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

from tfplace.capture.tf_api import TensorFlow, tensorflow

_OPTIONS = {"host_tracer_level": 2, "python_tracer_level": 0, "device_tracer_level": 1}


class ProfilerBusyError(RuntimeError):
    """Another profiler is running in this process."""


class _Doorkeeper:
    """Stands in for the profiler's native module while ours is on: who asks for a session ends ours first."""

    def __init__(self, real: Any, lease: ProfilerLease) -> None:
        self._real = real
        self._lease = lease

    def ProfilerSession(self) -> Any:
        self._lease.give_way()
        return self._real.ProfilerSession()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class ProfilerLease:
    """One session of the profiler: `start`, then `stop` once.

    Attributes:
        gave_way: The user started a profiler of their own, so ours ended early.
    """

    def __init__(self) -> None:
        self.gave_way = False
        self._session: Any = None
        self._folder: str | None = None
        self._early: bytes | None = None
        self._lock = threading.RLock()

    @property
    def is_on(self) -> bool:
        """True between `start` and `stop` (or giving way)."""
        return self._session is not None

    def start(self) -> None:
        """Start profiling.

        Raises:
            ProfilerBusyError: Somebody else's profiler is on.
        """
        tf = tensorflow()
        with self._lock:
            if is_user_profiling(tf):
                raise ProfilerBusyError("another profiler is running")
            session = tf.pywrap_profiler.ProfilerSession()
            self._folder = tempfile.mkdtemp(prefix="tfplace-")
            try:
                session.start(self._folder, dict(_OPTIONS))
                self._session = session
            except tf.tf.errors.AlreadyExistsError as error:
                raise ProfilerBusyError("another profiler is running") from error
            finally:
                if self._session is None:
                    self._remove_folder()
            tf.profiler._pywrap_profiler = _Doorkeeper(tf.pywrap_profiler, self)

    def give_way(self) -> None:
        """End ours because the user starts theirs; never raises."""
        self.gave_way = True
        with contextlib.suppress(Exception):
            self._early = self._collect()

    def stop(self) -> bytes | None:
        """End profiling and return the XSpace, serialized; null where nothing was profiled."""
        early, self._early = self._early, None
        return early if early is not None else self._collect()

    def abandon(self) -> None:
        """End profiling without its data; never raises an Exception."""
        with contextlib.suppress(Exception), self._lock:
            session, self._session = self._session, None
            if session is not None:
                try:
                    session.stop()
                finally:
                    self._restore()

    def _collect(self) -> bytes | None:
        with self._lock:
            session, self._session = self._session, None
            if session is None or self._folder is None:
                return None
            try:
                session.export_to_tb()
                files = sorted(Path(self._folder).glob("plugins/profile/*/*.xplane.pb"))
                return files[0].read_bytes() if files else None
            finally:
                self._restore()

    def _restore(self) -> None:
        tf = tensorflow()
        tf.profiler._pywrap_profiler = tf.pywrap_profiler
        self._remove_folder()

    def _remove_folder(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def is_user_profiling(tf: TensorFlow) -> bool:
    """Tell whether the user's own profiler is on, as far as Python knows."""
    return tf.profiler._profiler is not None


def probe() -> bool:
    """Tell whether a profiler could be started now; costs about a millisecond.

    A v1 `Session.run` with FULL_TRACE raises out of the user's call where a profiler is on.
    """
    lease = ProfilerLease()
    try:
        lease.start()
        return True
    except ProfilerBusyError:
        return False
    finally:
        lease.abandon()
