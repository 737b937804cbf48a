"""The parts of TensorFlow that capture touches, imported when first needed, in one place.

Most are internal: where one is missing, this TensorFlow is refused when decorating, never at a step.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tfplace.errors import TfplaceError

OLDEST = (2, 16)  # the internals below have had this form since


class UnsupportedTensorFlowError(TfplaceError):
    """TensorFlow is missing, too old, or has moved what capture needs."""

    slug = "unsupported-tensorflow"


@dataclass(frozen=True)
class TensorFlow:
    """Modules and classes of the running TensorFlow; all untyped, as TensorFlow is.

    Attributes:
        version: '2.21.0'.
    """

    version: str
    tf: Any
    context: Any
    ops: Any
    func_graph: Any
    concrete_function: Any
    polymorphic_function: Any
    resource_variables: Any
    ref_variables: Any
    session: Any
    profiler: Any
    pywrap_profiler: Any
    summary: Any
    tf_stack: Any
    xplane_pb2: Any
    config_pb2: Any
    step_stats_pb2: Any

    @property
    def eager_context(self) -> Any:
        """The process-wide eager context, made if there is none."""
        return self.context.context()


MODULES = {
    "context": "tensorflow.python.eager.context",
    "ops": "tensorflow.python.framework.ops",
    "func_graph": "tensorflow.python.framework.func_graph",
    "concrete_function": "tensorflow.python.eager.polymorphic_function.concrete_function",
    "polymorphic_function": "tensorflow.python.eager.polymorphic_function.polymorphic_function",
    "resource_variables": "tensorflow.python.ops.resource_variable_ops",
    "ref_variables": "tensorflow.python.ops.ref_variable",
    "session": "tensorflow.python.client.session",
    "profiler": "tensorflow.python.profiler.profiler_v2",
    "pywrap_profiler": "tensorflow.python.profiler.internal._pywrap_profiler",
    "summary": "tensorflow.python.ops.summary_ops_v2",
    "tf_stack": "tensorflow.python.util.tf_stack",
    "xplane_pb2": "tensorflow.tsl.profiler.protobuf.xplane_pb2",
    "config_pb2": "tensorflow.core.protobuf.config_pb2",
    "step_stats_pb2": "tensorflow.core.framework.step_stats_pb2",
}


@lru_cache(maxsize=1)
def tensorflow() -> TensorFlow:
    """Import TensorFlow (if the program has not) and return what capture needs of it.

    Raises:
        UnsupportedTensorFlowError: See there.
    """
    try:
        tf = importlib.import_module("tensorflow")
    except ImportError as error:
        hint = "Install TensorFlow in the environment that trains: pip install tensorflow."
        raise UnsupportedTensorFlowError(f"TensorFlow cannot be imported ({error}).", hint) from error
    version = str(tf.__version__)
    hint = "tfplace captures with TensorFlow 2.19 to 2.21; set TFPLACE_DISABLE=1 to train without it."
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise UnsupportedTensorFlowError(f"TensorFlow {version} is too old to capture with.", hint)
    try:
        modules = {name: importlib.import_module(path) for name, path in MODULES.items()}
        _check(modules)
    except (ImportError, AttributeError) as error:
        text = f"TensorFlow {version} lacks a part that capture needs: {error}."
        raise UnsupportedTensorFlowError(text, hint) from error
    return TensorFlow(version=version, tf=tf, **modules)


def _check(modules: dict[str, Any]) -> None:
    """Touch every attribute that is patched or called, so that a missing one is found now."""
    context = modules["context"].Context
    for name in ("call_function", "export_run_metadata", "enable_graph_collection", "ensure_initialized"):
        getattr(context, name)
    _ = modules["concrete_function"].ConcreteFunction._call_flat
    _ = modules["resource_variables"].BaseResourceVariable.__init__
    _ = modules["session"].BaseSession.run
    _ = modules["pywrap_profiler"].ProfilerSession.export_to_tb
    _ = modules["profiler"]._profiler
