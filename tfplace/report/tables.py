"""The tables of a report: headings and cells as text, for every renderer alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfplace.report.model import DIRECTIONS, Report
from tfplace.report.wording import count_of, join_words, sentence
from tfplace.units import format_bytes, format_ns

UNKNOWN = "?"
_TOP_OPS = 8
_WAYS = {"h2d": "host to device", "d2h": "device to host", "d2d": "within a device", "p2p": "device to device"}


@dataclass(frozen=True)
class Column:
    """A table's column.

    Attributes:
        name: Its heading.
        right: Numbers: aligned right.
        code: Names from the trace: shown verbatim.
        rank: 1 always shown, 2 where there is room, 3 only where width does not count (files, pipes).
    """

    name: str
    right: bool = False
    code: bool = False
    rank: int = 1


@dataclass(frozen=True)
class Table:
    """A table with its heading, a line about it, and how many rows were left out.

    Attributes:
        footnotes: What the column `why` says, for those who draw the table without it.
    """

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[tuple[str, ...]]
    about: str = ""
    left_out: int = 0
    footnotes: tuple[str, ...] = ()


def _size(value: float | None) -> str:
    return UNKNOWN if value is None else format_bytes(round(value))


def _time(micros: float | None) -> str:
    return UNKNOWN if micros is None else format_ns(round(micros * 1000))


def _count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.6g}" if value < 1e6 else f"{value:,.0f}"


def _shape(dtype: str | None, shape: list[int | None] | None) -> str:
    sizes = "[?]" if shape is None else f"[{','.join(UNKNOWN if size is None else str(size) for size in shape)}]"
    return f"{dtype or UNKNOWN} {sizes if shape is not None or dtype else ''}".rstrip()


def variables_table(report: Report) -> Table | None:
    """Return the variables, those that cost most first; None where there are none."""
    if not report.variables:
        return None
    columns = (
        Column("variable", code=True),
        Column("device", code=True),
        Column("type", code=True, rank=2),
        Column("bytes", right=True),
        Column("sent a step", right=True),
        Column("back a step", right=True, rank=2),
        Column("verdict"),
        Column("why", rank=3),
        Column("made at", code=True, rank=3),
    )
    rows = [
        (
            v["name"] or UNKNOWN,
            v["device"] or UNKNOWN,
            _shape(v["dtype"], v["shape"]),
            _size(v["bytes"]),
            _size(v["read_bytes_per_step"]) + (" (rows)" if v["rows_only"] and v["read_bytes_per_step"] else ""),
            _size(v["written_bytes_per_step"]),
            v["verdict"] or UNKNOWN,
            v["reason"] or "",
            v["source"] or "",
        )
        for v in report.variables
    ]
    counts = Counter(v["verdict"] or "unknown" for v in report.variables)
    about = f"{count_of(len(rows), 'variable')}: {', '.join(f'{n} {verdict}' for verdict, n in counts.most_common())}."
    return _without_empty(Table("Variables", columns, rows, about, footnotes=_reasons(report)))


def _reasons(report: Report) -> tuple[str, ...]:
    """One line per distinct reason: 'unnecessary: nothing keeps it there (conv1/weights, fc1/weights and 8 more)'."""
    names: dict[tuple[str, str], list[str]] = {}
    for v in report.variables:
        if v["reason"]:
            names.setdefault((v["verdict"] or "unknown", v["reason"]), []).append(v["name"] or UNKNOWN)
    return tuple(f"{verdict}: {reason} ({join_words(who, most=3)})" for (verdict, reason), who in names.items())


def totals_table(report: Report) -> Table | None:
    """Return what the bus carries in a step, by direction; None where it cannot be seen."""
    evidence = report.totals["evidence"]
    if evidence is None or not report.trace["accelerators"]:
        return None
    columns = (Column("direction"), Column("copies" if evidence == "memcpy" else "transfers", right=True),
               Column("bytes", right=True), Column("time", right=True))  # fmt: skip
    rows = []
    for way in DIRECTIONS:
        total = report.totals["per_step"][way]
        if total["count"]:
            least = "at least " if total["unknown_sizes"] and total["bytes"] is not None else ""
            label = f"{way.upper()}, {_WAYS[way]}"
            rows.append((label, _count(total["count"]), least + _size(total["bytes"]), _time(total["time_us"])))
    source = "copies that the trace recorded" if evidence == "memcpy" else "the graph's Send / Recv pairs"
    speed = f"Estimates take {report.trace['bus_gbps']:g} GB/s (--bus-gbps), and 4 GB/s from pageable memory."
    about = f"Counted from {source}. {_step_times(report)}".strip() + f" {speed}"
    if not rows:
        about = f"None. {about}"
    table = Table("Over the bus in a step", columns, rows, about)
    return table if report.trace["has_gpu_times"] else _without(table, "time")


def _step_times(report: Report) -> str:
    totals = report.totals
    parts = []
    if totals["step_time_us"] is not None:
        parts.append(f"a step takes {_time(totals['step_time_us'])}")
    if totals["gpu_busy_share"] is not None:
        parts.append(f"kernels run in {totals['gpu_busy_share'] * 100:.3g} % of it")
    if totals["exposed_copy_us"] is not None:
        parts.append(f"{_time(totals['exposed_copy_us'])} of copying is not hidden behind kernels")
    return sentence(join_words(parts).capitalize()) if parts else ""


def transfers_table(report: Report) -> Table | None:
    """Return the transfers of a step, largest first; None where there are none."""
    if not report.transfers:
        return None
    columns = (
        Column("way"),
        Column("tensor", code=True),
        Column("carries"),
        Column("bytes", right=True),
        Column("per step", right=True),
        Column("bytes a step", right=True, rank=3),
        Column("time of one", right=True, rank=2),
        Column("exposed", right=True, rank=3),
        Column("route", code=True, rank=2 if len(report.trace["accelerators"]) > 1 else 3),
        Column("memory", rank=3),
        Column("producer op", code=True, rank=3),
        Column("consumers", code=True, rank=2),
        Column("edge", code=True, rank=3),
        Column("evidence", rank=3),
    )
    rows = [
        (
            t["direction"] or UNKNOWN,
            t["tensor"] or UNKNOWN,
            _cargo(t),
            _size(t["bytes"]),
            _count(t["count_per_step"]),
            _size(t["bytes_per_step"]),
            _time(t["time_us"]),
            _time(t["exposed_us"]),
            f"{t['src_device'] or UNKNOWN} -> {t['dst_device'] or UNKNOWN}",
            _memory(t),
            t["producer_op"] or UNKNOWN,
            ", ".join(name or UNKNOWN for name in t["consumers"]) or UNKNOWN,
            t["edge"] or "",
            t["evidence"],
        )
        for t in report.transfers
    ]
    table = Table("Transfers in a step", columns, rows, f"{count_of(len(rows), 'distinct transfer')}, largest first.")
    return _without_empty(table)


def _cargo(row: dict[str, Any]) -> str:
    if row["rows_only"] and row["category"] == "variable":
        return "rows of a variable"
    return str(row["category"])


def _memory(row: dict[str, Any]) -> str:
    """'pageable' or 'pinned' of the host's end: the other end is plain from the direction."""
    kinds = [row[end] for end in ("src_memory", "dst_memory") if row[end] not in (None, "host", "device")]
    return " -> ".join(kinds)


def placement_table(report: Report) -> Table | None:
    """Return nodes and ops of each device; None where the trace has no nodes."""
    if not report.placement:
        return None
    columns = (Column("device", code=True), Column("nodes", right=True), Column("ops"))
    rows = [(row["device"] or "(not placed)", _count(row["nodes"]), _top_ops(row["ops"])) for row in report.placement]
    return Table("Placement by device", columns, rows)


def _top_ops(ops: dict[str, int]) -> str:
    shown = [f"{op} {count}" for op, count in list(ops.items())[:_TOP_OPS]]
    rest = len(ops) - len(shown)
    return ", ".join(shown) + (f" and {rest} other ops" if rest > 1 else " and 1 other op" if rest else "")


def scopes_table(report: Report) -> Table | None:
    """Return nodes by name scope and device; None where one scope holds them all."""
    scopes: Counter[str] = Counter()
    for row in report.placement:
        scopes.update(row["scopes"])
    if len(scopes) < 2:
        return None
    devices = [Column(row["device"] or "(not placed)", right=True) for row in report.placement]
    rows = [
        (scope, *(_count(row["scopes"].get(scope, 0)) for row in report.placement))
        for scope, _ in sorted(scopes.items(), key=lambda item: (-item[1], item[0]))
    ]
    return Table("Placement by name scope", (Column("scope", code=True), *devices), rows)


def _without(table: Table, *names: str) -> Table:
    """Return the table without the columns of these names."""
    keep = [index for index, column in enumerate(table.columns) if column.name not in names]
    columns = tuple(table.columns[index] for index in keep)
    return replace(table, columns=columns, rows=[tuple(row[i] for i in keep) for row in table.rows])


def _without_empty(table: Table) -> Table:
    """Return the table without the columns that tell nothing in any row, those always shown excepted."""
    dull = {"", UNKNOWN, f"{UNKNOWN} -> {UNKNOWN}"}
    names = [c.name for i, c in enumerate(table.columns) if c.rank > 1 and all(row[i] in dull for row in table.rows)]
    return _without(table, *names)
