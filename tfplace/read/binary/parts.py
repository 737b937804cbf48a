"""Columns of step_stats, collected a part at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tfplace.read.raw import TIME_FIELDS, RawStepStats

Ints = npt.NDArray[np.int64]
NONE: Ints = np.empty(0, np.int64)


class Outputs(NamedTuple):
    """The outputs of some events; `RawStepStats` says what the columns mean."""

    row: Ints
    slot: Ints
    dtype: Ints
    shape: list[str | None]
    num_bytes: Ints
    allocator: list[str]


class Texts:
    """UTF-8 to text; equal texts are one object; bytes that are not UTF-8 become U+FFFD and are counted."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}
        self.mangled = 0

    def take(self, latin: str, begin: Ints, size: Ints) -> list[str]:
        """Return the texts at these places of bytes that were decoded as Latin-1 (a slice of it costs least)."""
        seen = self.seen
        if len(seen) > 1 << 18:
            seen.clear()
        texts = [latin[a:b] for a, b in zip(begin.tolist(), (begin + size).tolist(), strict=True)]
        if not all(map(str.isascii, texts)):
            texts = [text if text.isascii() else self._decode(text) for text in texts]
        return [seen.setdefault(text, text) for text in texts]

    def _decode(self, latin: str) -> str:
        data = latin.encode("latin-1")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            self.mangled += 1
            return data.decode("utf-8", "replace")


class Parts:
    """The columns so far.

    Attributes:
        rows: How many events they have.
        texts: Keeps equal names, labels and allocators one object.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.texts = Texts()
        self._names: list[str] = []
        self._labels: list[str] = []
        self._numbers: dict[str, list[Ints]] = {name: [NONE] for name in (*TIME_FIELDS, "thread_id")}
        self._outputs: list[Outputs] = []

    def add(self, numbers: Mapping[str, Ints], names: list[str], labels: list[str], outputs: Outputs) -> None:
        """Add the columns of the next events; `outputs.row` counts from the first of them."""
        for name, column in numbers.items():
            self._numbers[name].append(column)
        self._names += names
        self._labels += labels
        self._outputs.append(outputs._replace(row=outputs.row + self.rows))
        self.rows += len(names)

    def finish(
        self, device_names: list[str], thread_names: list[dict[int, str]], device: npt.NDArray[np.integer]
    ) -> RawStepStats:
        """Return everything added; the parts are used up."""
        outputs, self._outputs = self._outputs, []

        def joined(name: str) -> Ints:
            return np.concatenate([NONE, *(getattr(part, name) for part in outputs)])

        return RawStepStats(
            device_names=device_names,
            thread_names=thread_names,
            device=device.astype(np.int32),
            node_name=self._names,
            timeline_label=self._labels,
            times={name: np.concatenate(self._numbers.pop(name)) for name in TIME_FIELDS},
            thread_id=np.concatenate(self._numbers.pop("thread_id")),
            output_row=joined("row"),
            output_slot=joined("slot"),
            output_dtype=joined("dtype"),
            output_shape=[text for part in outputs for text in part.shape],
            output_bytes=joined("num_bytes"),
            output_allocator=[text for part in outputs for text in part.allocator],
        )
