"""The graphs that TensorFlow makes of a function when it first runs, and which function each belongs to.

RunMetadata does not name the function of a `function_graphs` entry. So graphs are fetched after every
watched run: what arrived belongs to that function, or to one it calls; the argument names tell.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tfplace.capture.tf_api import TensorFlow, tensorflow

LATE_NAME = "tfplace"
MOST_FUNCTIONS = 4096
WATCHED_RUNS = 3  # of a function, in which it may be placed anew before it settles
STATEFUL_RANDOM = re.compile(
    r"^(Multinomial|ParameterizedTruncatedNormal|TruncatedNormal"
    r"|Random(Crop|Gamma|Poisson|PoissonV2|Shuffle|StandardNormal|Uniform|UniformInt))$"
)

XLA_OPS = frozenset(("_XlaCompile", "_XlaRun", "XlaLaunch"))


@dataclass
class Argument:
    """One tensor that goes into a function, as it was at the call."""

    index: int
    handle_id: int
    dtype: str
    shape: list[int] | None
    device: str


@dataclass
class Function:
    """One function that ran while graphs were collected.

    Attributes:
        name: '__inference_step_96'.
        concrete: The ConcreteFunction (it leads to variables and source lines); null where not known.
        arguments: Its inputs, explicit ones first, then the captured, in the order of `_Arg.index`.
        graphs: FunctionGraphs message of its last instantiation; null while none was seen.
        called_by: Name of the function whose run instantiated this one; '' at the top.
        runs: Times it ran under watch.
        steps: Numbers of the steps it ran in.
        jit: Compiled by XLA as a whole: it has no partition graphs to show.
        late: Instantiated a second time to see its graphs.
        instantiations: Times graphs arrived.
    """

    name: str
    concrete: Any = None
    arguments: list[Argument] = field(default_factory=list)
    argument_names: tuple[str, ...] = ()
    graphs: Any = None
    called_by: str = ""
    runs: int = 0
    steps: set[int] = field(default_factory=set)
    jit: bool = False
    late: bool = False
    instantiations: int = 0
    num_nodes: int = 0

    @property
    def partitions(self) -> list[Any]:
        """GraphDefs, one per device; [] where not known."""
        return list(self.graphs.partition_graphs) if self.graphs is not None else []

    @property
    def requested(self) -> list[Any]:
        """The GraphDef before placement and optimization, in a list; [] where not known."""
        return [self.graphs.pre_optimization_graph] if self.graphs is not None else []

    @property
    def hides_part(self) -> bool:
        """True where a part of it is compiled by XLA: that part is one node here."""
        return any(
            node.op in XLA_OPS or ("_XlaMustCompile" in node.attr and node.attr["_XlaMustCompile"].b)
            for graph in self.partitions
            for node in graph.node
        )

    @property
    def is_random(self) -> bool:
        """True where the function holds random ops whose state a second instantiation repeats."""
        return any(STATEFUL_RANDOM.match(node.op) for graph in self.partitions for node in graph.node)


class RunTicket(NamedTuple):
    """One run between `GraphStore.before_run` and `after_run`.

    Attributes:
        function: What runs.
        restore_options: Undoes what was changed for this run; cannot fail.
    """

    function: Function
    restore_options: Callable[[], None]


class GraphStore:
    """Collects the graphs of all functions that run between `open` and `close`.

    Args:
        late_first: Attach to functions that existed before `open` at their first run, not at their second:
            for a capture of a single step.
    """

    def __init__(self, late_first: bool = False) -> None:
        self.functions: dict[str, Function] = {}
        self._late_first = late_first
        self._before: frozenset[str] = frozenset()
        self._lock = threading.RLock()
        self._exporter: _SharedExport | None = None

    def open(self) -> None:
        """Ask TensorFlow for graphs from now on; initialises its context."""
        tf = tensorflow()
        context = tf.eager_context
        context.ensure_initialized()
        self._before = frozenset(_text(name) for name in context.list_function_names())
        self._exporter = _SharedExport(tf)
        self._exporter.enable()
        _run_small_op(tf)  # so that its own graph is not among those of a failed run, see settle_after_error

    def close(self) -> None:
        """Stop asking, unless the user asked too."""
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            exporter.remove()

    def before_run(self, concrete: Any, name: bytes, inputs: list[Any]) -> RunTicket:
        """Note a run; where its graphs would not come by themselves, ask the runtime to instantiate it again."""
        text = _text(name)
        with self._lock:
            function = self.functions.get(text)
            if function is None:
                function = Function(text, concrete)
                if len(self.functions) < MOST_FUNCTIONS:
                    self.functions[text] = function
        if function.runs == 0:
            _describe(function, inputs)
        function.runs += 1
        if not self._wants_late(function):
            return RunTicket(function, _nothing)
        function.late = True
        return RunTicket(function, _ask_again(function.runs))

    def after_run(self, ticket: RunTicket) -> None:
        """Fetch what the run brought; of a function that is settled only with `collect_rest`: it costs 40 us."""
        function = ticket.function
        is_settled = function.graphs is not None and function.runs > WATCHED_RUNS and not function.late
        if self._exporter is not None and not is_settled:
            with self._lock:
                self._assign(self._exporter.fetch(), function)

    def collect_rest(self) -> None:
        """Fetch what came meanwhile: functions that were placed anew because an argument had moved."""
        if self._exporter is not None:
            with self._lock:
                self._assign(self._exporter.fetch(), None, waiting=False)

    def settle_after_error(self) -> None:
        """A run that raised gives its graphs only after another op has succeeded: run one, then fetch."""
        _run_small_op(tensorflow())
        if self._exporter is not None:
            with self._lock:
                self._assign(self._exporter.fetch(), None)

    def _wants_late(self, function: Function) -> bool:
        # never one that was made while graphs are collected: its graphs should have come, and a second
        # instantiation would repeat its random ops for nothing
        if function.graphs is not None or function.jit or function.late or function.name not in self._before:
            return False
        return function.runs > 1 or self._late_first

    def _assign(self, arrived: Iterable[Any], running: Function | None, waiting: bool = True) -> None:
        for graphs in arrived:
            names = tuple(node.name for node in graphs.pre_optimization_graph.node if node.op in ("_Arg", "_DeviceArg"))
            owner = self._owner(names, running) if waiting else self._with_arguments(names)
            if owner is None:
                continue
            owner.graphs = _without_others(graphs, owner.argument_names) if running is None and waiting else graphs
            owner.instantiations += 1
            owner.num_nodes = sum(len(graph.node) for graph in graphs.partition_graphs)

    def _with_arguments(self, names: tuple[str, ...]) -> Function | None:
        return next(
            (one for one in self.functions.values() if one.argument_names and one.argument_names == names), None
        )

    def _owner(self, argument_names: tuple[str, ...], running: Function | None) -> Function | None:
        """Return the function with these arguments: the one that ran, one it calls, or one that failed before."""
        wanted = frozenset(argument_names)
        if running is None:
            waiting = [one for one in self.functions.values() if one.graphs is None]
            return next((one for one in waiting if frozenset(one.argument_names) <= wanted), None)
        if frozenset(running.argument_names) == wanted and len(running.argument_names) == len(argument_names):
            return running
        for atomic in called_functions(running.concrete):
            name = _text(atomic.name)
            if frozenset(_argument_names(atomic.cached_definition)) == wanted:
                function = self.functions.setdefault(name, Function(name, called_by=running.name))
                function.steps |= running.steps
                return function
        return None


def _without_others(graphs: Any, argument_names: tuple[str, ...]) -> Any:
    """Return the graphs of a run that failed without those of the op after it, which TensorFlow adds to them."""
    others = [
        any(node.op == "_Arg" and node.name not in argument_names for node in graph.node)
        for graph in graphs.partition_graphs
    ]
    kept = [graph for graph, other in zip(graphs.partition_graphs, others, strict=True) if not other]
    own = type(graphs)()
    own.CopyFrom(graphs)
    del own.partition_graphs[:]
    own.partition_graphs.extend(kept)
    return own


class _SharedExport:
    """`Context.export_run_metadata` for two: what we fetch is kept for a user who collects graphs too."""

    def __init__(self, tf: TensorFlow) -> None:
        self._tf = tf
        self._kept: list[Any] = []  # what the user's next export is to give as well
        self._retired = False
        trace = tf.summary._current_trace_context
        self._user_collects = bool(trace is not None and trace.graph)
        self._originals: dict[str, Any] = {}
        for name, patch in (
            ("export_run_metadata", self._export_for_user),
            ("enable_graph_collection", self._user_enables),
            ("enable_run_metadata", self._user_enables),
            ("disable_graph_collection", self._user_disables),
            ("disable_run_metadata", self._user_disables),
        ):
            original = getattr(tf.context.Context, name)
            self._originals[name] = original
            setattr(tf.context.Context, name, patch(original))

    def enable(self) -> None:
        """Collect, for us: through the patched method it would count as the user's wish, and stay on for ever."""
        self._originals["enable_graph_collection"](self._tf.eager_context)

    def fetch(self) -> list[Any]:
        message = self._originals["export_run_metadata"](self._tf.eager_context)
        if self._user_collects and message is not None:
            self._kept.append(message)
        return list(message.function_graphs) if message is not None else []

    def remove(self) -> None:
        """Stop collecting; where the user is still to be given something, the patches stay until then."""
        self._retired = True
        if not self._user_collects:
            self._kept = []
            self._originals["disable_graph_collection"](self._tf.eager_context)
        self._restore_if_over()

    def _restore_if_over(self) -> None:
        if self._retired and not self._kept:
            for name, original in self._originals.items():
                setattr(self._tf.context.Context, name, original)

    def _export_for_user(self, original: Any) -> Any:
        def export_run_metadata(context: Any) -> Any:
            message = original(context)
            kept, self._kept = self._kept, []
            self._restore_if_over()
            if message is None or not kept:
                return message
            merged = kept[0]
            for one in [*kept[1:], message]:
                merged.MergeFrom(one)
            return merged

        return export_run_metadata

    def _user_enables(self, original: Any) -> Any:
        def enable(context: Any) -> Any:
            self._user_collects = True
            return original(context)

        return enable

    def _user_disables(self, original: Any) -> Any:
        def disable(context: Any) -> Any:
            self._user_collects = False
            self._kept = []
            result = original(context)
            if not self._retired:
                self._originals["enable_graph_collection"](context)
            self._restore_if_over()
            return result

        return disable


def _run_small_op(tf: TensorFlow) -> None:
    with tf.tf.device("/device:CPU:0"):
        tf.tf.identity(tf.tf.constant(0))


def _nothing() -> None:
    """Restore options that were not changed."""


def _ask_again(number: int) -> Callable[[], None]:
    """Make this thread's next run instantiate its function anew; return what restores the options.

    Only this function is instantiated again and its first kernel stays cached: clearing the kernel cache
    would restart every random op of the program.
    """
    tf = tensorflow()
    context = tf.eager_context
    before = context.function_call_options
    config = tf.config_pb2.ConfigProto()
    if before.config_proto_serialized is not None:
        config.ParseFromString(before.config_proto_serialized)
    config.experimental.session_metadata.name = LATE_NAME
    config.experimental.session_metadata.version = number
    context.function_call_options = type(before)(executor_type=before.executor_type, config_proto=config)

    def restore() -> None:
        context.function_call_options = before

    return restore


def _describe(function: Function, inputs: list[Any]) -> None:
    """Fill in what is known of the function and its inputs at its first run."""
    tf = tensorflow()
    definition = tf.eager_context.get_function_def(function.name)
    function.jit = bool(definition.attr["_XlaMustCompile"].b) if "_XlaMustCompile" in definition.attr else False
    function.argument_names = tuple(_argument_names(definition))
    function.arguments = [_describe_input(index, tensor) for index, tensor in enumerate(inputs)]


def _describe_input(index: int, tensor: Any) -> Argument:
    try:
        shape = None if tensor.shape.rank is None else [-1 if d is None else int(d) for d in tensor.shape]
        dtype = tensor.dtype.name
        # a handle itself is always in host memory; what it stands for is on the handle's device
        device = tensor.device if dtype == "resource" else tensor.backing_device or tensor.device
        return Argument(index, tensor._id, dtype, shape, str(device or ""))
    except Exception:  # values that are not eager tensors (parallel tensors, custom devices) tell less
        return Argument(index, -1, str(getattr(getattr(tensor, "dtype", None), "name", "")), None, "")


def _argument_names(definition: Any) -> Iterator[str]:
    return (argument.name for argument in definition.signature.input_arg)


def called_functions(concrete: Any) -> Iterator[Any]:
    """Yield the AtomicFunctions that a ConcreteFunction calls, however deep, each once."""
    roots = [getattr(concrete, "_inference_function", None)]
    with contextlib.suppress(Exception):
        pairs = concrete._delayed_rewrite_functions._cached_function_pairs
        roots += [forward for forward, _ in pairs.values()]
    seen: set[int] = set()
    stack = [child for root in roots if root is not None for child in (root, *root.children)]
    while stack:
        atomic = stack.pop()
        if id(atomic) not in seen:
            seen.add(id(atomic))
            yield atomic
            stack.extend(atomic.children)


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
