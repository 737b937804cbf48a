"""What a file says, before any interpretation: the columns of its step_stats and its graphs.

Every decoder (binary, canonical text, any other text, JSON) ends here, so that `normalize`
sees one shape, and a test can compare every column of every event with protobuf's own reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from tfplace.model.trace import Note

TIME_FIELDS = (
    "all_start_micros",
    "op_start_rel_micros",
    "op_end_rel_micros",
    "all_end_rel_micros",
    "scheduled_micros",
    "all_start_nanos",
    "op_start_rel_nanos",
    "op_end_rel_nanos",
    "all_end_rel_nanos",
    "scheduled_nanos",
)
"""int64 fields of NodeExecStats, 0 where absent, exactly as in the file."""


T = TypeVar("T")


class Numbers(dict[str, int]):
    """Numbers texts in order of first appearance."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number

    def of(self, texts: Sequence[str | None]) -> npt.NDArray[np.int64]:
        """Return the numbers of some texts; -1 for null."""
        return np.fromiter((-1 if text is None else self[text] for text in texts), np.int64, len(texts))


class Coded(Sequence[T]):
    """A column of few distinct values, such as the names of a million rows; read like a list of them.

    Attributes:
        codes: int64[N], index into `distinct`.
        distinct: Distinct values, also such as no row has: columns may share them.
    """

    def __init__(self, codes: npt.NDArray[np.int64], distinct: Sequence[T]) -> None:
        self.codes = codes
        self.distinct = distinct

    def used(self) -> list[T]:
        """Return the values that at least one row has, each once."""
        seen = np.zeros(len(self.distinct), dtype=np.bool_)
        seen[self.codes] = True
        return [self.distinct[code] for code in np.flatnonzero(seen).tolist()]

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[T]:
        return map(self.distinct.__getitem__, self.codes.tolist())

    def __contains__(self, value: object) -> bool:
        return value in self.used()

    @overload
    def __getitem__(self, row: int) -> T: ...
    @overload
    def __getitem__(self, row: slice) -> Coded[T]: ...
    def __getitem__(self, row: int | slice) -> T | Coded[T]:
        if isinstance(row, slice):
            return Coded(self.codes[row], self.distinct)
        return self.distinct[int(self.codes[row])]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class RawStepStats:
    """StepStats as columns; one row per NodeExecStats, in file order.

    Attributes:
        device_names: One per DeviceStepStats, in file order; the same name may come twice.
        thread_names: One {thread id: name} per DeviceStepStats.
        device: int32[N], index into `device_names`.
        node_name: N strings.
        timeline_label: N strings.
        times: {field: int64[N]} for each of `TIME_FIELDS`.
        thread_id: int64[N]; 0 where absent.
        output_row: int64[M], index of the row that made the output.
        output_slot: int64[M].
        output_dtype: int64[M], DataType number; 0 where absent.
        output_shape: M strings '[32,10]', '[]' for a scalar, '?' for dimension -1; None where absent or of unknown
            rank.
        output_bytes: int64[M], allocation_description.requested_bytes; -1 where there is no allocation_description.
        output_allocator: M strings; '' where absent.
        memory_row: int64[K], index of the row after which an allocator told its bytes in use.
        memory_allocator: K strings.
        memory_bytes: int64[K], allocator_bytes_in_use; entries without it are left out.
    """

    device_names: list[str]
    thread_names: list[dict[int, str]]
    device: npt.NDArray[np.int32]
    node_name: Coded[str]
    timeline_label: Coded[str]
    times: dict[str, npt.NDArray[np.int64]]
    thread_id: npt.NDArray[np.int64]
    output_row: npt.NDArray[np.int64]
    output_slot: npt.NDArray[np.int64]
    output_dtype: npt.NDArray[np.int64]
    output_shape: list[str | None]
    output_bytes: npt.NDArray[np.int64]
    output_allocator: Coded[str]
    memory_row: npt.NDArray[np.int64]
    memory_allocator: Coded[str]
    memory_bytes: npt.NDArray[np.int64]


@dataclass(frozen=True)
class RawGraph:
    """One GraphDef of the file.

    Attributes:
        role: 'partition' (what ran on one device), 'pre' and 'post' (a function's graph before and
            after optimization), or 'graph' (a GraphDef file: placement only).
        name: 'partition:0', 'function:2/partition:1', 'function:2/pre', 'graph:0'.
        graph: tensorflow.GraphDef message of the private pool.
    """

    role: str
    name: str
    graph: Any


@dataclass(frozen=True)
class RawTrace:
    """One file: one step, or a graph alone.

    Attributes:
        source: The path, or '-'.
        format: 'RunMetadata text', 'StepStats binary', 'GraphDef text', 'RunMetadata JSON' ...;
            a compressed file ends in ' (gzip)'.
        step_stats: Null where the file holds none.
        context: What tfplace's own capture stored beside RunMetadata; {} elsewhere.
    """

    source: str
    format: str
    step_stats: RawStepStats | None
    graphs: list[RawGraph]
    context: dict[str, Any] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
