"""Doing something once TensorFlow is there, without importing it for the program.

The program may set environment variables, or choose a device plug-in, before its own import.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any


def after_import(name: str, action: Callable[[], None]) -> None:
    """Call `action` at the end of the import of module `name`: now, if it is imported already.

    `action` must not raise; it is called once.
    """
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Finder(name, action))


def forget(name: str, action: Callable[[], None]) -> None:
    """Do not call `action` any more, if it has not been."""
    sys.meta_path[:] = [
        one for one in sys.meta_path if not (isinstance(one, _Finder) and one.name == name and one.action == action)
    ]


class _Finder:
    """Finds one module as the others do, and adds `action` to the end of its import.

    No subclass of importlib.abc.MetaPathFinder: importing that takes longer than all the rest of tfplace.
    """

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self.name = name
        self.action = action

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec that the other finders give."""
        if fullname != self.name:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            self.action()

        loader.exec_module = exec_module
        return spec
