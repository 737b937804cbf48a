"""What capture left behind in this process; import it before anything is captured."""

import os
import tempfile

from tfplace.capture import funnel, profiler, slot

tempfile.tempdir = os.getcwd()
TF = profiler.tensorflow()
PLACES = [
    (TF.context.Context, name)
    for name in (
        "ensure_initialized",
        "call_function",
        "export_run_metadata",
        "enable_graph_collection",
        "enable_run_metadata",
        "disable_graph_collection",
        "disable_run_metadata",
    )
]
PLACES += [(TF.concrete_function.ConcreteFunction, "_call_flat"), (TF.session.BaseSession, "run")]
PLACES += [(TF.profiler, "_pywrap_profiler")]
BEFORE = {(owner, name): vars(owner)[name] for owner, name in PLACES}


def left_behind():
    """Return names of what is not as it was."""
    left = [name for (owner, name), before in BEFORE.items() if vars(owner)[name] is not before]
    if slot.live() is not None:
        left.append("slot")
    if funnel._state.listener is not None or funnel._state.originals is not None:
        left.append("funnel")
    if not profiler.probe():
        left.append("profiler")
    if b"tfplace" in (TF.eager_context.function_call_options.config_proto_serialized or b""):
        left.append("options")
    return left + [name for name in os.listdir(".") if name.endswith(".tmp") or name.startswith("tfplace-")]
