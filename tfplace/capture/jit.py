"""Running without XLA: inside a compiled cluster no op has a place of its own that a trace could show."""

from __future__ import annotations

import functools
import sys
from typing import Any

from tfplace.capture.after_import import after_import

_KERAS_TRAINER = "keras.src.trainers.trainer"
_FUNCTIONS = "tensorflow.python.eager.polymorphic_function.polymorphic_function"


def forbid_jit() -> None:
    """Turn off `jit_compile` of Keras (which sets it by itself once there is a GPU) and of tf.function in this process.

    Results change as far as XLA's rounding differs from that of single ops. Call it before TensorFlow is imported.
    """
    after_import(_KERAS_TRAINER, _patch_keras)
    after_import(_FUNCTIONS, _patch_function)


def _patch_keras() -> None:
    sys.modules[_KERAS_TRAINER].model_supports_jit = lambda model: False  # type: ignore[attr-defined]


def _patch_function() -> None:
    function: Any = sys.modules[_FUNCTIONS].Function
    make = function.__init__

    @functools.wraps(make)
    def without_jit(self: Any, *arguments: Any, **options: Any) -> None:
        if options.get("jit_compile"):
            options["jit_compile"] = None
        make(self, *arguments, **options)

    function.__init__ = without_jit
