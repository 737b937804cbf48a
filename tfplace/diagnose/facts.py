"""What rules read off an Analysis: which transfers count, per-step sums, cost, severity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tfplace.analyze.analysis import Analysis
from tfplace.diagnose.compiled import compiled_functions
from tfplace.diagnose.rule import Skip
from tfplace.diagnose.thresholds import Thresholds

BUS = ("H2D", "D2H", "P2P")
"""Directions that use the bus; a copy inside one GPU (D2D) or one host (H2H) does not."""

_SEEN = ("memcpy", "both")

Row = dict[str, Any]


@dataclass(frozen=True)
class Cost:
    """What something costs per step.

    Attributes:
        ns: Nanoseconds per step; null where neither times nor bytes tell.
        basis: 'measured', 'estimated' or null.
        words: The same for a sentence: 'about 0.36 ms a step at 12 GB/s (estimate)'.
        confidence: graph, timed or joined.
    """

    ns: float | None
    basis: str | None
    words: str
    confidence: str

    def fields(self, bytes_per_step: int | None) -> dict[str, Any]:
        """Return the fields of a Finding that tell what it costs."""
        return {
            "cost_ns_per_step": self.ns,
            "cost_basis": self.basis,
            "bytes_per_step": bytes_per_step,
            "confidence": self.confidence,
        }


def require_accelerator(analysis: Analysis) -> None:
    """Raise Skip where no GPU takes part: then nothing crosses a bus."""
    if analysis.accelerators.empty:
        raise Skip("no GPU in the trace; --accelerator CPU:1 treats a logical CPU device as one")


def require_graphs(analysis: Analysis) -> None:
    """Raise Skip where the trace holds no graph, so that edges between nodes are not known."""
    if not analysis.trace.has_graphs:
        raise Skip(
            why_no_graphs(analysis) or "no partition graphs in the trace (output_partition_graphs=True records them)"
        )


def why_no_graphs(analysis: Analysis) -> str | None:
    """Say that XLA compiled the step as a whole; null where graphs are missing for another reason, or are there."""
    if analysis.trace.has_graphs or not compiled_functions(analysis):
        return None
    return "XLA compiled the step as a whole"


def require_transfers(analysis: Analysis) -> None:
    """Raise Skip where neither a graph nor a copy could show what crosses."""
    require_accelerator(analysis)
    if not analysis.trace.has_graphs and not seen(analysis.transfers).any():
        missing = "no partition graphs and no GPU copies in the trace, so what crosses was not recorded"
        raise Skip(why_no_graphs(analysis) or missing)


def has_real_times(analysis: Analysis) -> bool:
    """Tell whether GPU times are a GPU's: not simulated, not a CPU that plays the accelerator."""
    trace = analysis.trace
    return bool(trace.has_device_times and trace.simulated is None and (analysis.accelerators["kind"] != "CPU").any())


def step_ns(analysis: Analysis) -> float | None:
    """Return the length of a step where it is that of a program on a real GPU; else null."""
    real = analysis.trace.simulated is None and (analysis.accelerators["kind"] != "CPU").any()
    return analysis.step_time_ns if real and analysis.step_time_ns else None


def share_of_step(analysis: Analysis, ns: float | None) -> float | None:
    """Return a time as a share of the step; null where either is unknown."""
    step = step_ns(analysis)
    return None if step is None or ns is None else ns / step


def seen(rows: pd.DataFrame) -> pd.Series[bool]:
    """Mark rows for which a copy was seen."""
    marks: pd.Series[bool] = rows["evidence"].isin(_SEEN)
    return marks


def where(rows: pd.DataFrame, marks: Any) -> pd.DataFrame:
    """Return the rows whose mark is true; an unknown mark counts as false. `marks`: a Series, or a list of bools."""
    series = marks if isinstance(marks, pd.Series) else pd.Series(marks, index=rows.index, dtype=bool)
    kept: pd.DataFrame = rows[series.fillna(False).astype(bool)]
    return kept


def has_value(rows: pd.DataFrame, column: str, values: Iterable[Any]) -> pd.Series[bool]:
    """Mark the rows in which `column` has one of the values; null has none."""
    marks: pd.Series[bool] = rows[column].isin(list(values)).fillna(False).astype(bool)
    return marks


def crossings(analysis: Analysis, *directions: str, category: str | None = None) -> pd.DataFrame:
    """Return the transfers over the bus that count: copies seen where the trace has any, else the pairs.

    On a traced GPU a pair without a copy did not run, or was not observed: it is no cost.
    """
    rows = analysis.transfers
    keep = rows["direction"].isin(directions or BUS) & (rows["category"].fillna("unknown") != "control")
    if seen(rows).any():
        keep &= seen(rows)
    if category is not None:
        keep &= rows["category"] == category
    return where(rows, keep)


def per_step(analysis: Analysis, rows: pd.DataFrame, column: str = "num_bytes") -> float | None:
    """Return the sum of `column` per step; null where no row has a value.

    A pair of a trace without events stands once for every step; all else is a mean over the steps.
    """
    values = rows[column]
    if len(rows) and not values.notna().any():
        return None
    in_steps = rows["step_id"].notna()
    return float(values[in_steps].sum()) / analysis.step_count + float(values[~in_steps].sum())


def count_per_step(analysis: Analysis, rows: pd.DataFrame) -> float:
    """Return how many of the rows happen in a step."""
    in_steps = int(rows["step_id"].notna().sum())
    return in_steps / analysis.step_count + (len(rows) - in_steps)


def bytes_per_step(analysis: Analysis, rows: pd.DataFrame) -> int | None:
    """Return bytes per step, rounded; null where no row has a size."""
    total = per_step(analysis, rows)
    return None if total is None else round(total)


def milliseconds(ns: float) -> str:
    """Say a time in ms with the digits that matter: 12 ms, 0.36 ms, 0.004 ms."""
    ms = ns / 1e6
    if ms >= 100:
        return f"{ms:,.0f} ms"
    return f"{ms:.3g} ms" if ms >= 0.001 else "less than 0.001 ms"


def about(ns: float) -> str:
    """Say an estimated time: 'about 0.36 ms', 'less than 0.001 ms'."""
    text = milliseconds(ns)
    return text if text.startswith("less") else f"about {text}"


def count_text(count: float) -> str:
    """Say a mean count: 20, or 2.5 where steps differ."""
    return f"{count:,.0f}" if float(count).is_integer() else f"{count:,.1f}"


def sentence(text: str) -> str:
    """Return the text with its first letter in upper case and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def bus_ns(num_bytes: float, gbps: float) -> float:
    """Return the time that bytes take at a bus speed: 1 GB/s is one byte per nanosecond."""
    return num_bytes / gbps


def cost_of(analysis: Analysis, thresholds: Thresholds, rows: pd.DataFrame) -> Cost:
    """Return what transfers cost per step.

    Measured where every row was seen on a real GPU: the time in which no kernel ran there, or the whole copy
    time where kernels were not timed. Else estimated from bytes and the stated bus speed.
    """
    if len(rows) and has_real_times(analysis) and seen(rows).all():
        confidence = "joined" if rows["edge_name"].notna().any() and (rows["evidence"] == "both").any() else "timed"
        exposed = per_step(analysis, rows, "exposed_ns") if rows["exposed_ns"].notna().all() else None
        if exposed is not None:
            return Cost(exposed, "measured", f"{milliseconds(exposed)} a step not hidden behind kernels", confidence)
        whole = per_step(analysis, rows.assign(duration=rows["end_ns"] - rows["start_ns"]), "duration")
        if whole is not None:
            return Cost(whole, "measured", f"{milliseconds(whole)} a step of copying", confidence)
    return estimate(analysis, thresholds, rows)


def estimate(analysis: Analysis, thresholds: Thresholds, rows: pd.DataFrame) -> Cost:
    """Return the cost of transfers from their bytes: pageable memory at its own speed, all else at the bus speed."""
    pageable = has_value(rows, "src_memory", ["pageable"]) | has_value(rows, "dst_memory", ["pageable"])
    slow, fast = per_step(analysis, rows[pageable]), per_step(analysis, rows[~pageable])
    if len(rows) == 0 or (not slow and not fast and not rows["num_bytes"].notna().any()):
        return Cost(None, None, "cost unknown: no sizes in the trace", "graph")
    ns = bus_ns(slow or 0.0, thresholds.pageable_gbps) + bus_ns(fast or 0.0, thresholds.bus_gbps)
    speed = thresholds.pageable_gbps if pageable.all() else thresholds.bus_gbps
    mixed = f" ({thresholds.pageable_gbps:g} from pageable memory)" if pageable.any() and not pageable.all() else ""
    return Cost(ns, "estimated", f"{about(ns)} a step at {speed:g} GB/s{mixed} (estimate)", "graph")


def known_sum(values: Iterable[int | None]) -> int | None:
    """Return the sum of the known values; null where none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def estimate_bytes(thresholds: Thresholds, num_bytes: float | None) -> Cost:
    """Return the cost of so many bytes per step at the stated bus speed."""
    if num_bytes is None:
        return Cost(None, None, "cost unknown: no sizes in the trace", "graph")
    ns = bus_ns(num_bytes, thresholds.bus_gbps)
    return Cost(ns, "estimated", f"{about(ns)} a step at {thresholds.bus_gbps:g} GB/s (estimate)", "graph")


def severity_of(analysis: Analysis, thresholds: Thresholds, ns: float | None) -> str:
    """Return info, warning or error from the cost: against the step where its length is known, else in ms."""
    if ns is None:
        return "info"
    share = share_of_step(analysis, ns)
    if share is None:
        warning, error, value = thresholds.warning_ms, thresholds.error_ms, ns / 1e6
    else:
        warning, error, value = thresholds.warning_share, thresholds.error_share, share
    return "error" if value >= error else "warning" if value >= warning else "info"


def distinct(values: Iterable[Any]) -> list[Any]:
    """Return the values, each once, in order, nulls left out."""
    return list(dict.fromkeys(v for v in values if v is not None))


def consumers_of(rows: pd.DataFrame) -> list[int]:
    """Return the nodes that read any of the transfers, each once."""
    return distinct(node for nodes in rows["consumer_node_ids"].tolist() for node in nodes or ())


def with_consumer_in(rows: pd.DataFrame, nodes: Sequence[int] | set[int]) -> pd.DataFrame:
    """Return the transfers that at least one of `nodes` reads."""
    wanted = set(nodes)
    marks = [bool(wanted.intersection(consumers or ())) for consumers in rows["consumer_node_ids"].tolist()]
    return where(rows, marks)
