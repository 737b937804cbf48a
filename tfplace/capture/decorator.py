"""`@tfplace.trace` on the training step, and `with tfplace.capture(path):` around one."""

from __future__ import annotations

import contextlib
import copyreg
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar, overload

from tfplace.capture import guard
from tfplace.capture.recording import Recording, current_error, outermost_graph
from tfplace.capture.schedule import DEFAULT_PATH, Options
from tfplace.capture.sources import hidden_frames, watch_if_loaded, watch_variables
from tfplace.capture.tf_api import tensorflow
from tfplace.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

watch_if_loaded()  # variables made before the decorator is reached have lines too


@overload
def trace(function: F, /) -> F: ...


@overload
def trace(
    path: str = ...,
    /,
    *,
    skip: int = ...,
    steps: int = ...,
    xplane: bool = ...,
    accelerator: str | None = ...,
) -> Callable[[F], F]: ...


def trace(
    path: Any = DEFAULT_PATH,
    /,
    *,
    skip: int = 2,
    steps: int = 3,
    xplane: bool = False,
    accelerator: str | None = None,
) -> Any:
    """Capture calls of a training step into one trace file.

    Put it on the step, above or below `@tf.function`, on a function or a method:

        @tfplace.trace
        @tf.function
        def train_step(images, labels): ...

        @tfplace.trace("trace.pbtxt", skip=10, steps=5)

    The call itself is made exactly once and its result and its exception are not touched. After the last
    captured call the step runs as if it were not decorated.

    Args:
        path: File to write (`trace.pb` where left out); .pb or .pbtxt, either with .gz.
        skip: Calls before the first timed one. Graphs are collected in them.
        steps: Calls to time.
        xplane: Also write the profiler's own data, for TensorBoard.
        accelerator: 'CPU:1': the logical CPU device that plays the accelerator.

    Returns:
        The decorated function: for a tf.function the same object. With TFPLACE_DISABLE=1 the function itself.

    Raises:
        UsageError: What is decorated is no function, or an argument makes no sense.
        OutputError: The file cannot be written there.
        UnsupportedTensorFlowError: TensorFlow is missing or too old.
    """
    if callable(path) or isinstance(path, staticmethod | classmethod | property):
        return path if guard.is_disabled() else _decorate(path, Options())
    if guard.is_disabled():
        return _identity
    options = Options(path, skip=skip, steps=steps, xplane=xplane, accelerator=accelerator)
    return functools.partial(_decorate, options=options)


def _identity(function: F) -> F:
    return function


def _decorate(function: Any, options: Options) -> Any:
    name = getattr(function, "__name__", None) or type(function).__name__
    if isinstance(function, staticmethod | classmethod | property):
        raise UsageError(
            f"@tfplace.trace is above @{type(function).__name__}.", f"Write it below @{type(function).__name__}."
        )
    if isinstance(function, type):
        raise UsageError(f"{name} is a class.", "Decorate the function or method that does one training step.")
    if not callable(function):
        raise UsageError(f"{function!r} is not a function.", "Decorate the function that does one training step.")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise UsageError(f"{name} is a generator or coroutine, so a call of it is not a step.")
    tf = tensorflow()
    watch_variables()
    recording = Recording(options, name)
    if isinstance(function, tf.polymorphic_function.Function | tf.concrete_function.ConcreteFunction):
        return _trace_in_place(function, recording)
    if not inspect.isroutine(function) and not isinstance(function, functools.partial):
        raise UsageError(f"{name} is an object, not a function.", "Decorate its method instead.")
    return _wrap(function, recording)


def call(recording: Recording, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call the user's function once, with what is ours before and after it."""
    step = recording.enter()
    if step is None:
        return function(*args, **kwargs)
    failed = True
    try:
        result = function(*args, **kwargs)
        failed = False
        return result
    finally:
        recording.leave(step, current_error() if failed else None)


def _wrap(function: Callable[..., Any], recording: Recording) -> Any:
    """Wrap a Python function; when TensorFlow traces it into a graph, mark that graph instead of timing the tracing."""
    tf = tensorflow()
    building = tf.tf.inside_function
    pass_through = in_graph = False

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal in_graph
        if pass_through:
            return function(*args, **kwargs)
        if building():
            in_graph = True
            recording.guard.run("mark", _mark, recording)
            convert, status = tf.tf.__internal__.autograph.tf_convert, tf.tf.__internal__.autograph.control_status_ctx
            with hidden_frames():
                return convert(function, status())(*args, **kwargs)
        return call(recording, function, args, kwargs)

    def end() -> None:
        nonlocal pass_through
        if not in_graph:
            pass_through = True
            del wrapper.autograph_info__  # type: ignore[attr-defined]  # autograph may convert us like any function

    recording.on_done.append(end)
    wrapper.autograph_info__ = {}  # type: ignore[attr-defined]  # autograph converts the function inside, not us
    return wrapper


def _mark(recording: Recording) -> None:
    graph = outermost_graph()
    if graph is not None and not recording.done:
        recording.marked[id(graph)] = graph
        recording.go_live()


def _trace_in_place(function: Any, recording: Recording) -> Any:
    """Give this one object a class of its own that captures its calls, until the capture is over.

    So it stays what it was: an instance of TensorFlow's class, with all attributes, saved and pickled as before.
    """
    plain = type(function)

    class Traced(plain):  # type: ignore[misc, valid-type]
        """A tf.function whose calls are captured."""

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            if tensorflow().tf.inside_function():
                recording.guard.run("mark", _mark, recording)
                return plain.__call__(self, *args, **kwargs)
            return call(recording, functools.partial(plain.__call__, self), args, kwargs)

        def __get__(self, instance: Any, owner: Any) -> Any:
            bound = plain.__get__(self, instance, owner)
            if instance is not None and type(bound) is plain and not recording.done:
                _become(bound, Traced)
                recording.on_done.append(functools.partial(_become, bound, plain))
            return bound

        def __reduce_ex__(self, protocol: Any) -> Any:
            return copyreg.__newobj__, (plain,), self.__getstate__()  # type: ignore[attr-defined]

    Traced.__name__, Traced.__qualname__, Traced.__module__ = plain.__name__, plain.__qualname__, plain.__module__
    _become(function, Traced)
    recording.on_done.append(functools.partial(_become, function, plain))
    return function


def _become(thing: Any, kind: type) -> None:
    thing.__class__ = kind


@contextlib.contextmanager
def capture(path: str = DEFAULT_PATH, *, xplane: bool = False, accelerator: str | None = None) -> Iterator[None]:
    """Capture what happens inside the `with` as one step.

        with tfplace.capture("trace.pb"):
            train_step(images, labels)

    A function that already ran is instantiated a second time to see its graphs; its results are the same, but
    tf.random ops inside it (not Keras layers, not tf.random.Generator) repeat one step. `@tfplace.trace` avoids that.

    Args:
        path: File to write; .pb or .pbtxt, either with .gz.
        xplane: Also write the profiler's own data, for TensorBoard.
        accelerator: 'CPU:1': the logical CPU device that plays the accelerator.

    Raises:
        UsageError, OutputError, UnsupportedTensorFlowError: As for `trace`.
    """
    if guard.is_disabled():
        yield
        return
    options = replace(Options(path, skip=0, steps=1, xplane=xplane, accelerator=accelerator), made_by="capture")
    tensorflow()
    watch_variables()
    recording = Recording(options, _calling_function())
    step = recording.enter()
    error: BaseException | None = None
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        try:
            if step is not None:
                recording.leave(step, error)
        finally:
            recording.finish()  # the one step is over, also where ending it failed


def _calling_function() -> str:
    """Return the name of the function that holds the `with`."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in (__name__, "contextlib"):
        frame = frame.f_back
    return frame.f_code.co_name if frame is not None else "capture"
