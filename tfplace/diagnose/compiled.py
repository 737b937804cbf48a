"""Functions that XLA compiled as a whole: capture knows what they were handed, the trace shows nothing of their inside.

They have no graphs and no timed nodes, so all that is known of them stands in the context of the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tfplace.analyze.analysis import Analysis
from tfplace.names import parse_device
from tfplace.read.tables.recorded import compiled_wholes
from tfplace.units import format_bytes, shape_bytes


@dataclass(frozen=True)
class Handed:
    """A variable that a compiled function takes as an argument.

    Attributes:
        name: Its name, or 'argument 3'.
        device: Short name of the device that holds it; null unknown.
        on_host: Whether that device is a host.
        dtype: 'float32'; null unknown.
        shape: '[64,10]'; null unknown.
        num_bytes: Its size; null unknown.
        source: The user's line that made it.
    """

    name: str
    device: str | None
    on_host: bool
    dtype: str | None
    shape: str | None
    num_bytes: int | None
    source: str | None


@dataclass(frozen=True)
class Compiled:
    """A function that XLA compiled as a whole.

    Attributes:
        name: 'train_step (__inference_train_step_22)'.
        variables: What it takes: those on a host first, then by size.
        failed: A step in which it ran raised an error.
    """

    name: str
    variables: tuple[Handed, ...]
    failed: bool


def compiled_functions(analysis: Analysis) -> list[Compiled]:
    """Return the functions that XLA compiled as a whole, as capture stored them; [] for other people's files."""
    context = analysis.trace.context
    steps = context.get("steps")
    raised = {
        step.get("num")
        for step in (steps if isinstance(steps, list) else [])
        if isinstance(step, dict) and step.get("failed") is True
    }
    return [_read(analysis, function, raised) for function in compiled_wholes(context)]


def _read(analysis: Analysis, function: dict[str, Any], raised: set[Any]) -> Compiled:
    arguments, ran_in = function.get("arguments"), function.get("steps")
    variables = [
        _handed(analysis, argument)
        for argument in (arguments if isinstance(arguments, list) else [])
        if isinstance(argument, dict) and argument.get("kind") == "variable"
    ]
    variables.sort(key=lambda one: (not one.on_host, -(one.num_bytes or 0), one.name))
    own, python = _text(function.get("name")), _text(function.get("python_name"))
    name = f"{python} ({own})" if python and own else python or own or "a function"
    failed = any(number in raised for number in ran_in) if isinstance(ran_in, list) else False
    return Compiled(name, tuple(variables), failed)


def _handed(analysis: Analysis, argument: dict[str, Any]) -> Handed:
    dtype, shape, device = (_text(argument.get(key)) for key in ("dtype", "shape", "device"))
    short, on_host = _place(analysis, device)
    stored = argument.get("bytes")  # not in files of early versions
    return Handed(
        name=(_text(argument.get("name")) or f"argument {argument.get('index')}").removesuffix(":0"),
        device=short,
        on_host=on_host,
        dtype=dtype,
        shape=shape,
        num_bytes=stored if type(stored) is int and stored >= 0 else shape_bytes(dtype, shape),
        source=_text(argument.get("source")),
    )


def _place(analysis: Analysis, device: str | None) -> tuple[str | None, bool]:
    """Return the short name of a device, and whether it is a host: as the trace has it, else as its name tells."""
    if device is None:
        return None, False
    known = analysis.trace.devices
    same = known[(known["full_name"] == device).fillna(False).astype(bool)]
    if len(same):
        return str(same["name"].iloc[0]), bool(same["role"].iloc[0] == "host")
    parsed = parse_device(device)
    return parsed.short or None, parsed.kind == "CPU"


def by_device(variables: Iterable[Handed]) -> list[str]:
    """Return '2 variables (4.2 MB) on GPU:0' for each device, hosts first."""
    groups: dict[str, list[Handed]] = {}
    for one in sorted(variables, key=lambda one: not one.on_host):
        groups.setdefault(one.device or "a device that is not recorded", []).append(one)
    return [
        f"{len(group)} variable{'s' * (len(group) != 1)} ({total_size(group)}) on {device}"
        for device, group in groups.items()
    ]


def total_size(variables: Iterable[Handed]) -> str:
    """Return the size of all of them in words."""
    sizes = [one.num_bytes for one in variables]
    known = [size for size in sizes if size is not None]
    if not known:
        return "size unknown"
    return ("at least " if len(known) < len(sizes) else "") + format_bytes(sum(known))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
