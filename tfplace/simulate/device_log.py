"""What the simulated device itself counted, and which ops it cannot run."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Literal

from tfplace.simulate.build import find_wheel, library_path
from tfplace.simulate.errors import SimulateError
from tfplace.simulate.loader import _load, loaded_library

DIRECTIONS = ("H2D", "D2H", "D2D", "P2P")
_ORIGINS = {"tensor": 0, "upload": 1}


@dataclass(frozen=True)
class CopyTotals:
    """Copies of one direction.

    Attributes:
        count: How many; empty tensors are not copied.
        num_bytes: Their size together.
    """

    count: int
    num_bytes: int


@dataclass(frozen=True)
class UncoveredOp:
    """An op that a GPU could run and the simulated GPU cannot.

    Attributes:
        op: For example `CudnnRNNV3`.
        types: Type attributes of the kernels concerned, such as `T=half`; empty where the kernel has none.
        complete: Whether no kernel of the op can run; otherwise those for other types can.
    """

    op: str
    types: tuple[str, ...]
    complete: bool


def copies(*, traced: bool = False, origin: Literal["tensor", "upload"] = "tensor") -> dict[str, CopyTotals]:
    """The copies that the device made in this process, by direction.

    Args:
        traced: Only those of the last (or running) profile or traced `Session.run`, in place of all since the
            start or `reset_copies`.
        origin: `tensor` for the copies of edges and eager tensors; `upload` for the constants that go up when a
            kernel is built, which is before the step that a trace shows.

    Returns:
        H2D, D2H, D2D (on one GPU) and P2P (between GPUs) to their totals.

    Raises:
        SimulateError: Nothing is simulated in this process.
    """
    library = _started()
    totals = {}
    for index, direction in enumerate(DIRECTIONS):
        count, num_bytes = ctypes.c_int64(), ctypes.c_int64()
        library.tfplace_sim_copies(int(traced), _ORIGINS[origin], index, ctypes.byref(count), ctypes.byref(num_bytes))
        totals[direction] = CopyTotals(count.value, num_bytes.value)
    return totals


def reset_copies() -> None:
    """Sets all counts to zero.

    Raises:
        SimulateError: Nothing is simulated in this process.
    """
    _started().tfplace_sim_reset_copies()


def list_uncovered_ops() -> tuple[UncoveredOp, ...]:
    """The ops with a GPU kernel for which no CPU kernel can stand in, by name.

    Needs no simulated GPU in this process; imports TensorFlow and builds the device if need be.

    Returns:
        The ops, each with the types concerned: other types of the same op may run.

    Raises:
        SimulateError: As `tfplace.simulate.start`.
    """
    library = _load(library_path(find_wheel()))
    types: dict[str, list[str]] = {}
    complete: dict[str, bool] = {}
    for line in library.tfplace_sim_uncovered().decode().splitlines():
        op, of_kernel, extent = line.split("\t")
        types.setdefault(op, []).extend(filter(None, [of_kernel]))
        complete[op] = extent == "all"
    return tuple(UncoveredOp(op, tuple(types[op]), complete[op]) for op in sorted(types))


def _started() -> ctypes.CDLL:
    library = loaded_library()
    if library is None:
        raise SimulateError("Nothing is simulated in this process.", "Call tfplace.simulate.start() first.")
    return library
