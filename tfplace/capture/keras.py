"""`KerasCallback` for `fit`, `evaluate` and `predict`."""

from __future__ import annotations

from typing import Any

from tfplace.capture import guard
from tfplace.capture.keras_call import KerasCall
from tfplace.capture.recording import Recording
from tfplace.capture.schedule import DEFAULT_PATH, Options
from tfplace.capture.sources import watch_variables
from tfplace.capture.tf_api import tensorflow

_Callback: Any = tensorflow().tf.keras.callbacks.Callback


class KerasCallback(_Callback):  # type: ignore[misc]
    """Captures some batches of `fit`, `evaluate` or `predict` into one trace file.

        model.fit(data, callbacks=[tfplace.KerasCallback("trace.pb", batch=10)])

    With `steps_per_execution` one captured step is one execution, of several batches. Where an error or Ctrl-C ends
    `fit`, the file holds what was seen until then.

    Args:
        path: File to write; .pb or .pbtxt, either with .gz.
        batch: Number of the first batch to time, from 0, counted over all epochs.
        steps: Batches (executions) to time.
        xplane: Also write the profiler's own data, for TensorBoard.
        accelerator: 'CPU:1': the logical CPU device that plays the accelerator.

    Raises:
        UsageError, OutputError: An argument makes no sense; the file cannot be written there.
    """

    def __init__(
        self,
        path: str = DEFAULT_PATH,
        *,
        batch: int = 10,
        steps: int = 3,
        xplane: bool = False,
        accelerator: str | None = None,
    ) -> None:
        super().__init__()
        self._recording: Recording | None = None
        self._step: Any = None
        self._depth = 0
        if not guard.is_disabled():
            options = Options(
                path, skip=batch, steps=steps, xplane=xplane, accelerator=accelerator, made_by="KerasCallback"
            )
            watch_variables()
            self._recording = Recording(options, "fit")
            self._recording.ends_on_error = True

    def _begin(self, kind: str) -> None:
        recording = self._recording
        if recording is None:
            return
        if self._depth and recording.is_over():  # this callback again, after a fit that an error ended
            self._depth, self._step = 0, None
            recording.finish_early()
        self._depth += 1  # validation inside fit is an evaluate inside it
        if self._depth == 1 and not recording.done:
            recording.step_name = kind
            if recording.guard.run("begin", self._go_live, recording) is None:
                recording.finish()  # that failed: do not try again at every batch

    def _go_live(self, recording: Recording) -> bool:
        recording.has_ended = KerasCall(self, recording.finish_early).has_ended
        return recording.go_live()

    def _end(self) -> None:
        self._depth -= 1
        if self._recording is not None and self._depth <= 0:
            self._close_step()
            # also when `batch` was never reached: a capture that stays on would keep out every later one
            self._recording.finish()

    def _batch_begin(self, kind: str) -> None:
        recording = self._recording
        if recording is None or recording.done or recording.step_name != kind:
            return
        self._close_step()
        self._step = recording.enter()

    def _close_step(self) -> None:
        step, self._step = self._step, None
        if step is not None and self._recording is not None:
            self._recording.leave(step, None)

    def on_train_begin(self, logs: Any = None) -> None:
        """Collect graphs from here on."""
        self._begin("fit")

    def on_test_begin(self, logs: Any = None) -> None:
        """Collect graphs from here on."""
        self._begin("evaluate")

    def on_predict_begin(self, logs: Any = None) -> None:
        """Collect graphs from here on."""
        self._begin("predict")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin a step."""
        self._batch_begin("fit")

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin a step."""
        self._batch_begin("evaluate")

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Begin a step."""
        self._batch_begin("predict")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """End it."""
        self._close_step()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """End it, unless it is validation inside a fit."""
        if self._recording is not None and self._recording.step_name == "evaluate":
            self._close_step()

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """End it."""
        if self._recording is not None and self._recording.step_name == "predict":
            self._close_step()

    def on_train_end(self, logs: Any = None) -> None:
        """Write what there is."""
        self._end()

    def on_test_end(self, logs: Any = None) -> None:
        """Write what there is."""
        self._end()

    def on_predict_end(self, logs: Any = None) -> None:
        """Write what there is."""
        self._end()
