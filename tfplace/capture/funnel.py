"""The two places that every call of a compiled function passes, watched while a capture is live.

`ConcreteFunction._call_flat` sees tf.function, concrete functions, SavedModels, Keras' fit and the
backward call; below it `Context.call_function` sees the name that really runs (`__forward_...` under an
outer tape) and all tensors that go in. Both are put back when the last listener leaves.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

from tfplace.capture.sources import hidden_frames
from tfplace.capture.tf_api import tensorflow


class Listener(Protocol):
    """What a capture does around the calls; none of it may raise an Exception."""

    def before_top(self, function: Any) -> Any:
        """A compiled function is about to be called eagerly, not from within another one. Return a ticket."""

    def after_top(self, ticket: Any, failed: bool) -> None:
        """That call is over; `ticket` is what `before_top` gave."""

    def before_run(self, function: Any, name: bytes, inputs: list[Any]) -> Any:
        """The runtime is about to run function `name`. Return a ticket; null = nothing to do afterwards."""

    def after_run(self, ticket: Any) -> None:
        """That run is over."""


class _Calls(threading.local):
    """Compiled functions that this thread is calling, the outermost first."""

    def __init__(self) -> None:
        self.stack: list[Any] = []


class _State:
    """What is installed now.

    Attributes:
        listener: Who watches; null = nobody.
        originals: What was replaced: `_call_flat` and `call_function`; null = nothing.
    """

    listener: Listener | None = None
    originals: tuple[Any, Any] | None = None


_calls = _Calls()
_lock = threading.RLock()
_state = _State()


def install(listener: Listener) -> None:
    """Watch all calls from now on; one listener at a time."""
    tf = tensorflow()
    function_class, context_class = tf.concrete_function.ConcreteFunction, tf.context.Context
    with _lock:
        if _state.originals is None:
            call_flat, call_function = _state.originals = function_class._call_flat, context_class.call_function
            function_class._call_flat = _watch_call_flat(call_flat, tf.context.context)
            context_class.call_function = _watch_call_function(call_function)
        _state.listener = listener


def remove(listener: Listener) -> None:
    """Put the originals back, if `listener` is the one installed and nobody has wrapped them since."""
    tf = tensorflow()
    with _lock:
        if _state.listener is not listener:
            return
        _state.listener = None
        if _state.originals is not None:
            places = (tf.concrete_function.ConcreteFunction, "_call_flat"), (tf.context.Context, "call_function")
            if all(hasattr(getattr(owner, name), "tfplace_original") for owner, name in places):
                for (owner, name), original in zip(places, _state.originals, strict=True):
                    setattr(owner, name, original)
                _state.originals = None


def forget() -> None:
    """In a forked child, where locks may be held by threads that are no more: listen to nobody."""
    _state.listener = None


def _watch_call_flat(original: Any, context: Any) -> Any:
    def tfplace_call_flat(self: Any, *args: Any, **kwargs: Any) -> Any:
        listener, stack = _state.listener, _calls.stack
        if listener is None:
            return original(self, *args, **kwargs)
        if not context().executing_eagerly():
            with hidden_frames():
                return original(self, *args, **kwargs)
        ticket = None if stack else listener.before_top(self)
        stack.append(self)
        failed = True
        try:
            result = original(self, *args, **kwargs)
            failed = False
            return result
        finally:
            stack.pop()
            if ticket is not None:
                listener.after_top(ticket, failed)

    tfplace_call_flat.tfplace_original = original  # type: ignore[attr-defined]
    return tfplace_call_flat


def _watch_call_function(original: Any) -> Any:
    def tfplace_call_function(self: Any, name: bytes, tensor_inputs: list[Any], num_outputs: int) -> Any:
        listener = _state.listener
        if listener is None:
            return original(self, name, tensor_inputs, num_outputs)
        stack = _calls.stack
        ticket = listener.before_run(stack[-1] if stack else None, name, tensor_inputs)
        try:
            return original(self, name, tensor_inputs, num_outputs)
        finally:
            if ticket is not None:
                listener.after_run(ticket)

    tfplace_call_function.tfplace_original = original  # type: ignore[attr-defined]
    return tfplace_call_function
