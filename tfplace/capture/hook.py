"""v1: `SessionHook` for MonitoredSession and Estimator, `trace_session` for a plain Session."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from tfplace.capture import guard
from tfplace.capture.recording import current_error
from tfplace.capture.schedule import DEFAULT_PATH, Options
from tfplace.capture.tf_api import tensorflow
from tfplace.capture.v1 import SessionRecording
from tfplace.errors import UsageError

_tf = tensorflow()
_train = _tf.tf.compat.v1.train
_SessionRunHook: Any = _train.SessionRunHook


class SessionHook(_SessionRunHook):  # type: ignore[misc]
    """Captures some runs of a MonitoredSession (or Estimator) into one trace file.

        with tf.compat.v1.train.MonitoredTrainingSession(hooks=[tfplace.SessionHook("trace.pb")]) as session:

    It adds no run, no node and needs no global step; the user's RunOptions are kept.

    Args:
        path: File to write; .pb or .pbtxt, either with .gz.
        skip: Runs before the first traced one.
        steps: Runs to trace.
        accelerator: 'CPU:1': the logical CPU device that plays the accelerator.

    Raises:
        UsageError, OutputError: An argument makes no sense; the file cannot be written there.
    """

    def __init__(
        self, path: str = DEFAULT_PATH, *, skip: int = 2, steps: int = 3, accelerator: str | None = None
    ) -> None:
        self._recording: SessionRecording | None = None
        self._step: Any = None
        self._session: Any = None
        if not guard.is_disabled():
            options = Options(path, skip=skip, steps=steps, accelerator=accelerator, made_by="SessionHook")
            self._recording = SessionRecording(options, "Session.run")

    def before_run(self, run_context: Any) -> Any:
        """Ask for a full trace of this run, if it is one to trace."""
        recording = self._recording
        if recording is None or recording.done:
            return None
        self._end_failed_run()
        session = run_context.session
        if self._session is None or self._session() is not session:
            # an error in the loop around the runs closes the session without calling `end`
            self._session = recording.guard.run("session", finish_with, session, recording, self._end_failed_run)
        self._step = recording.enter(getattr(session, "graph", None))
        if self._step is None or not self._step.timed:
            return None
        return _train.SessionRunArgs(fetches=None, options=full_trace(None))

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keep what the run gave."""
        step, self._step = self._step, None
        if step is not None and self._recording is not None:
            self._recording.leave(step, run_values.run_metadata if step.timed else None)

    def _end_failed_run(self) -> None:
        """End a run that never came to `after_run`: it raised."""
        step, self._step = self._step, None
        if step is not None and self._recording is not None:
            self._recording.leave(step, None, RuntimeError("the run raised"))

    def end(self, session: Any) -> None:
        """The training is over: write what there is."""
        if self._recording is not None:
            self._recording.finish()


def finish_with(session: Any, recording: SessionRecording, before: Callable[[], None] | None = None) -> Any:
    """Finish the capture when the session is closed; one that was dropped without that counts as ended.

    Args:
        session: A Session, or what stands in for one.
        recording: Its capture.
        before: To be done before that.

    Returns:
        A weak reference to the session.
    """
    reference = weakref.ref(session)
    replaced = vars(session).get("close")

    def close() -> None:
        if before is not None:
            before()
        recording.finish_early()
        known = reference()
        if known is not None:
            vars(known).pop("close", None)
            if replaced is not None:
                known.close = replaced
            known.close()

    def has_ended() -> bool:
        known = reference()
        return known is None or bool(getattr(known, "_closed", False))

    session.close = close
    recording.has_ended = has_ended
    return reference


def full_trace(options: Any) -> Any:
    """Return a copy of the user's RunOptions (or new ones) that asks for times and partition graphs."""
    merged = _tf.config_pb2.RunOptions()
    if options is not None:
        merged.CopyFrom(options)
    merged.trace_level = _tf.config_pb2.RunOptions.FULL_TRACE
    merged.output_partition_graphs = True
    return merged


def asks_for_trace(options: Any) -> bool:
    """Tell whether the user traces or debugs this run already."""
    if options is None:
        return False
    return bool(options.trace_level or options.output_partition_graphs or options.debug_options.debug_tensor_watch_opts)


def run_traced(
    recording: SessionRecording,
    session: Any,
    run: Any,
    fetches: Any,
    *,
    feed_dict: Any,
    options: Any,
    run_metadata: Any,
) -> Any:
    """Make one run of a session by its own `run`, captured; it is made exactly once."""
    step = None if asks_for_trace(options) else recording.enter(session.graph)
    if step is None:
        return run(fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata)
    own = None
    if step.timed:
        own, options = _tf.config_pb2.RunMetadata(), full_trace(options)
    failed = True
    try:
        result = run(fetches, feed_dict=feed_dict, options=options, run_metadata=own if step.timed else run_metadata)
        failed = False
        return result
    finally:
        recording.leave(step, own, current_error() if failed else None)
        if own is not None and run_metadata is not None and not failed:
            recording.guard.run("give back", _give_back, own, run_metadata)


def _give_back(own: Any, theirs: Any) -> None:
    """Give the user's RunMetadata what it would have got without a trace."""
    theirs.CopyFrom(own)
    for name in ("step_stats", "partition_graphs", "cost_graph", "function_graphs"):
        theirs.ClearField(name)


def trace_session(
    session: Any, path: str = DEFAULT_PATH, *, skip: int = 2, steps: int = 3, accelerator: str | None = None
) -> Any:
    """Capture some runs of a plain `tf.compat.v1.Session` into one trace file.

        session = tfplace.trace_session(tf.compat.v1.Session(), "trace.pb")

    Runs for which the user asks TensorFlow for a trace are left alone and not counted.

    Args:
        session: A Session or InteractiveSession.
        path: File to write; .pb or .pbtxt, either with .gz.
        skip: Runs before the first traced one (initialisation is one).
        steps: Runs to trace.
        accelerator: 'CPU:1': the logical CPU device that plays the accelerator.

    Returns:
        The same session.

    Raises:
        UsageError, OutputError: The session is none, or an argument makes no sense.
    """
    if guard.is_disabled():
        return session
    if not isinstance(session, _tf.session.BaseSession):
        raise UsageError(f"{type(session).__name__} is not a tf.compat.v1.Session.", "Use SessionHook with others.")
    options = Options(path, skip=skip, steps=steps, accelerator=accelerator, made_by="trace_session")
    recording = SessionRecording(options, "Session.run")
    plain_run = session.run

    def run(fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        if recording.done:
            session.__dict__.pop("run", None)
            return plain_run(fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata)
        given = {"feed_dict": feed_dict, "options": options, "run_metadata": run_metadata}
        return run_traced(recording, session, plain_run, fetches, **given)

    session.run = run
    finish_with(session, recording)
    return session
