"""Has an op a GPU kernel for its types, and which of its arguments stay in host memory?

TensorFlow answers from its kernel registry, which its Linux wheel fills even where no GPU is. tfplace
ships that registry of one TensorFlow version as a small table, so that reports need no TensorFlow.

Source: tensorflow/core/framework/op_kernel.cc, FindKernelRegistration and KernelAttrsMatch.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tfplace.errors import TfplaceError

SHIPPED = Path(__file__).parent.parent / "data" / "gpu_kernels_tf2_21.json"
LEAST_GPU_KERNELS = 2000  # the CUDA-built wheel registers about 5,000, tensorflow-cpu 470


class KernelsUnavailableError(TfplaceError):
    """The installed TensorFlow cannot tell which ops have GPU kernels."""

    slug = "kernels-unavailable"


@dataclass(frozen=True)
class Registration:
    """One or more kernels of an op that a GPU can run.

    Attributes:
        types: {attribute: accepted values}, dtypes as 'float32'; an attribute that is not named takes any.
        host_memory: Names of the arguments that the kernel takes or gives in host memory.
        on_host: All data that it gives is in host memory (all that it takes, where it gives none), so it
            is booked on the GPU and computes on the host. Resource handles do not count as data.
        fallback: Registered for device type DEFAULT: used where no GPU registration fits.
        label: Only for nodes whose `_kernel` attribute says so; '' = the usual kernel.
        priority: Of several that fit, the highest wins.
    """

    types: Mapping[str, frozenset[str]]
    host_memory: tuple[str, ...] = ()
    on_host: bool = False
    fallback: bool = False
    label: str = ""
    priority: int = 0

    def fits(self, types: Mapping[str, object]) -> bool:
        """Tell whether it accepts `types`; what `types` does not name is taken to fit."""
        if types.get("_kernel", "") != self.label:
            return False
        return all(_accepts(allowed, types.get(name)) for name, allowed in self.types.items())


@dataclass(frozen=True)
class KernelRegistry:
    """The GPU kernels of one TensorFlow build.

    In all methods `types` is {attribute: dtype name}, as in a node's decoded attributes: all of them may
    be given, only those that a kernel constrains are looked at. It may be partial: what is not named is
    taken to fit. A list of types is a tuple; '_ref' at the end of a type is passed over.

    Attributes:
        name: For people: 'TensorFlow 2.21.0 Linux wheel (CUDA build)'.
        tf_version: '2.21.0'; null where not known.
        ops: {op: its GPU registrations}; an empty tuple = the op is known and has none.
    """

    name: str
    tf_version: str | None = None
    ops: Mapping[str, tuple[Registration, ...]] = field(repr=False, default_factory=dict)

    def has_gpu_kernel(self, op: str, types: Mapping[str, object]) -> bool | None:
        """Tell whether `op` has a GPU kernel that accepts `types`; null = op not known.

        True also for kernels that only book the op on the GPU and compute on the host: see `computes_on_host`.
        `_Mkl*` and `_Fused*` ops are rewrites for the CPU: the answer is that of the op they replaced.
        """
        names = self._names(op)
        if not names:
            return None
        return any(self._chosen(name, types) for name in names)

    def host_memory_args(self, op: str, types: Mapping[str, object]) -> tuple[str, ...]:
        """Return the names of the arguments that the GPU kernel keeps in host memory.

        Where `types` leaves several kernels possible: the arguments that all of them keep there.
        Empty where no GPU kernel fits or the op is not known.
        """
        chosen = self._first_chosen(op, types)
        shared = chosen[0].host_memory if chosen else ()
        return tuple(name for name in shared if all(name in other.host_memory for other in chosen))

    def computes_on_host(self, op: str, types: Mapping[str, object]) -> bool | None:
        """Tell whether the op, though placed on a GPU, gives its results in host memory; null = not known.

        So does most int32 arithmetic ('AddV2' of int32 has a GPU registration, all of it in host memory).
        False where no GPU kernel fits. Null also where `types` leaves kernels of both sorts possible.
        """
        if not self._names(op):
            return None
        answers = {registration.on_host for registration in self._first_chosen(op, types)}
        return None if len(answers) > 1 else answers == {True}

    def _names(self, op: str) -> list[str]:
        """Return the known op names to ask for `op`: itself, or for a rewrite what it stands for."""
        if not op.startswith(("_Mkl", "_Fused")):
            return [op] if op in self.ops else []
        candidates = [*([op] if op.startswith("_Fused") else []), *_plain_names(op)]
        on_gpu = [name for name in dict.fromkeys(candidates) if self.ops.get(name)]
        return on_gpu or [name for name in candidates if name in self.ops and not name.startswith("_")][:1]

    def _chosen(self, op: str, types: Mapping[str, object]) -> list[Registration]:
        """Return the registrations that TensorFlow could choose; more than one only where `types` is partial."""
        fitting = [registration for registration in self.ops[op] if registration.fits(types)]
        fitting = [one for one in fitting if not one.fallback] or fitting
        highest = max((one.priority for one in fitting), default=0)
        return [one for one in fitting if one.priority == highest]

    def _first_chosen(self, op: str, types: Mapping[str, object]) -> list[Registration]:
        return next(filter(None, (self._chosen(name, types) for name in self._names(op))), [])


def _accepts(allowed: frozenset[str], value: object) -> bool:
    if value is None:
        return True
    values = value if isinstance(value, list | tuple) else (value,)
    return all(str(one).removesuffix("_ref") in allowed for one in values)


def _plain_names(op: str) -> Iterator[str]:
    """Yield what a rewrite may stand for, the nearest first: '_MklNativeFusedConv2D' -> '_FusedConv2D', 'Conv2D'.

    Source: tensorflow/core/common_runtime/mkl_layout_pass.cc and
    tensorflow/core/grappler/optimizers/remapper.cc.
    """
    for prefix in ("_MklNative", "_Mkl"):
        if op.startswith(prefix):
            op = op.removeprefix(prefix)
            yield op  # _MklFusedBatchNormV3: FusedBatchNormV3 is an op of its own
            break
    op = op.removeprefix("_").removeprefix("PadWith").removesuffix("WithBias")
    if op.startswith("Fused"):
        yield f"_{op}"
    yield op.removeprefix("Fused")


# ---- the shipped table -------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def load_shipped() -> KernelRegistry:
    """Return the table that comes with tfplace (made by tools/make_kernel_table.py)."""
    table = json.loads(SHIPPED.read_text(encoding="utf-8"))
    sets = [frozenset(names.split(" ")) for names in table["sets"]]
    shapes = [_unpack(row, sets) for row in table["registrations"]]
    ops = {op: tuple(shapes[number] for number in numbers) for op, numbers in table["ops"].items()}
    return KernelRegistry(table["name"], table["tf_version"], ops)


def _unpack(row: dict[str, Any], sets: list[frozenset[str]]) -> Registration:
    types = {name: sets[number] for name, number in row["types"].items()}
    rest = {key: value for key, value in row.items() if key not in ("types", "host_memory")}
    return Registration(types, tuple(row.get("host_memory", ())), **rest)


# ---- answers stored in a trace -----------------------------------------------------------------------


def from_context(context: Mapping[str, Any]) -> KernelRegistry:
    """Return the registry that capture stored in a trace.

    Args:
        context: {'tf_version': '2.21.0', 'ops': {op: [registration, ...]}}; a registration is
            {'types': {attribute: [dtype, ...]}, 'host_memory': [argument, ...], 'on_host': bool,
            'fallback': bool, 'label': str, 'priority': int}, where all but 'types' may be left out; [] = no
            GPU kernel. What has another form is left out, as if the trace did not know the op.
    """
    version = context.get("tf_version")
    version = version if isinstance(version, str) else None
    ops: dict[str, tuple[Registration, ...]] = {}
    stored = context.get("ops")
    for op, rows in stored.items() if isinstance(stored, Mapping) else ():
        try:
            ops[op] = tuple(_from_stored(row) for row in rows)
        except (TypeError, ValueError, AttributeError, KeyError):
            continue
    return KernelRegistry(f"TensorFlow {version or 'of unknown version'}, as stored in the trace", version, ops)


def _from_stored(row: Mapping[str, Any]) -> Registration:
    types = {str(name): frozenset(map(str, values)) for name, values in row["types"].items()}
    return Registration(
        types,
        tuple(map(str, row.get("host_memory", ()))),
        bool(row.get("on_host", False)),
        bool(row.get("fallback", False)),
        str(row.get("label", "")),
        int(row.get("priority", 0)),
    )


# ---- TensorFlow's own registry -----------------------------------------------------------------------


def from_tensorflow() -> KernelRegistry:
    """Return the registry of the installed TensorFlow (imports it: seconds).

    Raises:
        KernelsUnavailableError: TensorFlow is not installed, or its build registers hardly any GPU kernels.
    """
    hint = "Install the CUDA-built package (pip install tensorflow; no GPU is needed), or leave out --kernels-from."
    try:
        # by name: reports never import tensorflow unless somebody asks for it
        kernels = importlib.import_module("tensorflow.python.framework.kernels")
        op_defs = importlib.import_module("tensorflow.python.framework.op_def_registry")
        dtypes = importlib.import_module("tensorflow.python.framework.dtypes")
        version = importlib.import_module("tensorflow").__version__
    except ImportError as error:
        raise KernelsUnavailableError(f"TensorFlow cannot be imported ({error}).", hint) from error
    registered = list(kernels.get_all_registered_kernels().kernel)
    count = sum(kernel.device_type == "GPU" for kernel in registered)
    if count < LEAST_GPU_KERNELS:
        text = f"TensorFlow {version} as installed registers {count} GPU kernels: it was built without CUDA."
        raise KernelsUnavailableError(text, hint)
    names = {kernel.op: op_defs.get(kernel.op) for kernel in registered}
    ops = _merge_kernels(registered, names, lambda number: str(dtypes.as_dtype(number).name))
    return KernelRegistry(f"TensorFlow {version}, as installed", version, ops)


def _merge_kernels(
    registered: Iterable[Any], op_defs: Mapping[str, Any], dtype_name: Any
) -> dict[str, tuple[Registration, ...]]:
    """Return {op: registrations} of KernelDef messages: kernels that differ in one attribute become one."""
    ops: dict[str, list[Registration]] = {}
    for kernel in registered:
        kinds = ops.setdefault(kernel.op, [])
        if kernel.device_type in ("GPU", "DEFAULT"):
            types = {one.name: _allowed(one.allowed_values.list, dtype_name) for one in kernel.constraint}
            host = tuple(sorted(set(kernel.host_memory_arg)))
            on_host = _on_host(op_defs.get(kernel.op), host)
            fallback = kernel.device_type == "DEFAULT"
            kinds.append(Registration(types, host, on_host, fallback, kernel.label, kernel.priority))
    return {op: tuple(_merge(_without_covered(kinds))) for op, kinds in sorted(ops.items())}


def _allowed(values: Any, dtype_name: Any) -> frozenset[str]:
    """Return the accepted values of an attribute as a node's decoded attributes print them."""
    texts = (text.decode() for text in values.s)
    return frozenset((*map(dtype_name, values.type), *texts, *map(str, values.i), *map(str, values.b)))


def _on_host(op_def: Any, host_memory: tuple[str, ...]) -> bool:
    """Tell whether all data that the op gives (takes, where it gives none) is in host memory."""
    if op_def is None:
        return False
    resource = 20  # DataType.DT_RESOURCE: a handle, which says nothing of where the data is
    for arguments in (op_def.output_arg, op_def.input_arg):
        names = {argument.name for argument in arguments if argument.type != resource}
        if names:
            return names <= set(host_memory)
    return False


def _without_covered(kinds: list[Registration]) -> list[Registration]:
    """Leave out DEFAULT kernels that a GPU kernel for the same types always goes before."""
    gpu = [(one.types, one.label) for one in kinds if not one.fallback]
    return [one for one in kinds if not (one.fallback and (one.types, one.label) in gpu)]


def _merge(kinds: list[Registration]) -> list[Registration]:
    for name in sorted({name for one in kinds for name in one.types}):
        groups: dict[Any, Registration] = {}
        for one in kinds:
            others = frozenset((key, values) for key, values in one.types.items() if key != name)
            key = (others, name in one.types, one.host_memory, one.on_host, one.fallback, one.label, one.priority)
            first = groups.setdefault(key, one)
            if name in one.types:
                groups[key] = replace(first, types={**first.types, name: first.types[name] | one.types[name]})
        kinds = list(groups.values())
    return kinds
