"""Columns of step_stats, collected a part at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tfplace.read.binary.content import Ints, Texts
from tfplace.read.raw import TIME_FIELDS, Coded, RawStepStats

NONE: Ints = np.empty(0, np.int64)


class Outputs(NamedTuple):
    """The outputs of some events; `RawStepStats` says what the columns mean."""

    row: Ints
    slot: Ints
    dtype: Ints
    shape: list[str | None]
    num_bytes: Ints
    allocator: Ints


class Memory(NamedTuple):
    """What allocators had in use after some events; `RawStepStats` says what the columns mean."""

    row: Ints
    allocator: Ints
    num_bytes: Ints


class Parts:
    """The columns so far.

    Attributes:
        rows: How many events they have.
        texts: Numbers names, labels and allocators alike.
    """

    def __init__(self, room: int = 0) -> None:
        """Begin with room for as many events; more is made when needed.

        Most of the columns of a file are all 0, and zeros that nobody writes take neither time nor memory.
        """
        self.rows = 0
        self.texts = Texts()
        self._names: list[Ints] = [NONE]
        self._labels: list[Ints] = [NONE]
        self._numbers: dict[str, Ints] = {name: np.zeros(room, np.int64) for name in (*TIME_FIELDS, "thread_id")}
        self._outputs: list[Outputs] = []
        self._memory: list[Memory] = []

    def new_rows(self, count: int) -> dict[str, Ints]:
        """Return the numbers of the next `count` events, all 0, to be filled in before they are added."""
        end = self.rows + count
        room = len(self._numbers["thread_id"])
        if end > room:
            for name, column in self._numbers.items():
                self._numbers[name] = np.zeros(max(end, 2 * room), np.int64)
                self._numbers[name][: self.rows] = column[: self.rows]
        return {name: column[self.rows : end] for name, column in self._numbers.items()}

    def add(self, names: Ints, labels: Ints, outputs: Outputs, memory: Memory) -> None:
        """Add the new rows; rows of outputs and memory count from the first of them."""
        self._names.append(names)
        self._labels.append(labels)
        self._outputs.append(outputs._replace(row=outputs.row + self.rows))
        known = memory.num_bytes > 0
        self._memory.append(Memory(memory.row[known] + self.rows, memory.allocator[known], memory.num_bytes[known]))
        self.rows += len(names)

    def finish(
        self, device_names: list[str], thread_names: list[dict[int, str]], device: npt.NDArray[np.integer]
    ) -> RawStepStats:
        """Return everything added; the parts are used up."""
        outputs, self._outputs = self._outputs, []
        memory = [np.concatenate([NONE, *columns]) for columns in zip(*self._memory, strict=True)] or [NONE] * 3
        texts = self.texts.distinct()

        def joined(name: str) -> Ints:
            return np.concatenate([NONE, *(getattr(part, name) for part in outputs)])

        return RawStepStats(
            device_names=device_names,
            thread_names=thread_names,
            device=device.astype(np.int32),
            node_name=Coded(np.concatenate(self._names), texts),
            timeline_label=Coded(np.concatenate(self._labels), texts),
            times={name: self._numbers[name][: self.rows] for name in TIME_FIELDS},
            thread_id=self._numbers["thread_id"][: self.rows],
            output_row=joined("row"),
            output_slot=joined("slot"),
            output_dtype=joined("dtype"),
            output_shape=[text for part in outputs for text in part.shape],
            output_bytes=joined("num_bytes"),
            output_allocator=Coded(joined("allocator"), texts),
            memory_row=memory[0],
            memory_allocator=Coded(memory[1], texts),
            memory_bytes=memory[2],
        )
