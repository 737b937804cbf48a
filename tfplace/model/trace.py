"""The Trace: what was read from one or more files, as frozen typed tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from tfplace.model import schema


@dataclass(frozen=True)
class Note:
    """Degraded or doubtful data, printed in every report.

    Attributes:
        slug: Stable short name: `copies-without-size`.
        text: One sentence for people.
        count: How many items it concerns; null where counting makes no sense.
    """

    slug: str
    text: str
    count: int | None = None


@dataclass(frozen=True)
class Trace:
    """One training step, or several, as tables (columns: `tfplace.model.schema`).

    Attributes:
        source: Paths or '-' as the user gave them.
        format: What the content is: 'RunMetadata text', 'GraphDef binary' ...
        tf_version: TensorFlow version where the trace states it, else null.
        tf_era: 'TF1' or 'TF2' as far as the content shows, else null; picks which fix comes first.
        simulated: Description of the simulated GPU, or null for a trace that does not claim one.
        has_graphs: Partition graphs are there: edges are known, not inferred.
        has_times: step_stats are there.
        has_device_times: Kernel or copy lanes of an accelerator are there.
        context: What capture stored beside RunMetadata; {} for other people's files.
    """

    source: tuple[str, ...]
    format: str
    devices: pd.DataFrame = field(repr=False, default_factory=lambda: schema.empty("devices"))
    nodes: pd.DataFrame = field(repr=False, default_factory=lambda: schema.empty("nodes"))
    edges: pd.DataFrame = field(repr=False, default_factory=lambda: schema.empty("edges"))
    outputs: pd.DataFrame = field(repr=False, default_factory=lambda: schema.empty("outputs"))
    events: pd.DataFrame = field(repr=False, default_factory=lambda: schema.empty("events"))
    copies: pd.DataFrame = field(repr=False, default_factory=lambda: schema.empty("copies"))
    memory: pd.DataFrame = field(repr=False, default_factory=lambda: schema.empty("memory"))
    steps: pd.DataFrame = field(repr=False, default_factory=lambda: schema.empty("steps"))
    notes: tuple[Note, ...] = ()
    tf_version: str | None = None
    tf_era: str | None = None
    simulated: str | None = None
    has_graphs: bool = False
    has_times: bool = False
    has_device_times: bool = False
    context: dict[str, Any] = field(default_factory=dict)

    def table(self, name: str) -> pd.DataFrame:
        """Return one of the tables that a trace itself holds.

        Raises:
            KeyError: No such table.
        """
        if name not in ("devices", "nodes", "edges", "outputs", "events", "copies", "memory", "steps"):
            raise KeyError(name)
        frame: pd.DataFrame = getattr(self, name)
        return frame
