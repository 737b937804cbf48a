"""Record training steps: where everything was placed, what was copied, how long it took.

Stands alone: it imports `tfplace.errors`, the standard library and, when first used, TensorFlow. What it
learns goes into one file (see `context.py` for the part that RunMetadata has no field for), which the
rest of tfplace reads in another process, on another day.

The package itself can be called, as `with tfplace.capture("trace.pb"):` does; see `decorator.capture`.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import ModuleType


class _CallablePackage(ModuleType):
    """`tfplace.capture` is the name of this package and of what users call."""

    def __call__(
        self, path: str = "trace.pb", *, xplane: bool = False, accelerator: str | None = None
    ) -> AbstractContextManager[None]:
        """Capture what happens inside the `with` as one step; see `tfplace.capture.decorator.capture`."""
        from tfplace.capture.decorator import capture  # noqa: PLC0415 (it imports TensorFlow)

        return capture(path, xplane=xplane, accelerator=accelerator)


sys.modules[__name__].__class__ = _CallablePackage
