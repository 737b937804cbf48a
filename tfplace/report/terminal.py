"""The report in a terminal: colour, and tables that fit its width."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table as RichTable
from rich.text import Text

from tfplace.names import printable
from tfplace.report.model import Report
from tfplace.report.page import EVERYTHING, TERMINAL, FindingBlock, Page, build_page
from tfplace.report.plain import width_of
from tfplace.report.tables import Column, Table
from tfplace.report.wording import safe

_WIDE = 110  # from this width on, columns of rank 2 fit
_GAP = 3  # between two columns of a rich table
_LEAST_NAME = 12
_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def render_terminal(report: Report, width: int, color_system: str | None = "auto", show_all: bool = False) -> str:
    """Return the report for a terminal `width` columns wide.

    Unless `show_all`: at most 15 rows and 5 findings, and names shortened to fit.

    Args:
        report: What to say.
        width: Columns of the terminal.
        color_system: As rich has it: 'auto', 'standard', '256', 'truecolor'; None = no colour.
        show_all: Show all rows and findings.
    """
    page = build_page(report, EVERYTHING if show_all else TERMINAL)
    console = Console(
        width=width,
        color_system=color_system,  # type: ignore[arg-type]  # rich has a Literal of these names
        force_terminal=True,
        markup=False,  # names from a trace are data
        highlight=False,
        emoji=False,
    )
    with console.capture() as capture:
        console.print(_draw(page, width, show_all))
    return capture.get()


def _draw(page: Page, width: int, whole: bool) -> RenderableType:
    parts: list[RenderableType] = [_text(line, "bold") for line in page.head]
    parts += [_text(line, "dim") for line in page.trust]
    border = _STYLES.get(page.severity or "", "green")
    parts += [Panel(_text(page.verdict, "bold"), box=box.ROUNDED, border_style=border, padding=(0, 1))]
    for block in page.findings:
        parts += [_finding(block), Text()]
    if page.findings_left_out:
        parts += [_text(f"And {page.findings_left_out} more: --all", "italic"), Text()]
    parts += [_text(line, "dim") for line in page.rules]
    for question, answer in page.answers:
        parts += [Text(), _text(question, "bold"), _indent(_text(answer))]
    for table in page.tables:
        parts += [Text(), *_table(table, width, whole)]
    if page.notes:
        parts += [Text(), _text("Notes", "bold"), *(_bullet(note) for note in page.notes)]
    return Group(*parts)


def _text(value: str, style: str = "") -> Text:
    return Text("\n".join(safe(line) for line in value.splitlines()), style=style)


def _indent(body: RenderableType, by: int = 2) -> Padding:
    return Padding(body, (0, 0, 0, by))


def _bullet(value: str, style: str = "") -> RenderableType:
    grid = RichTable.grid(padding=(0, 1))
    grid.add_column(width=3, justify="right")
    grid.add_column(overflow="fold")
    grid.add_row(Text("-", style=style), _text(value, style))
    return grid


def _finding(block: FindingBlock) -> RenderableType:
    style = _STYLES.get(block.severity, "")
    head = Text.assemble((f"{block.number} ", "bold"), (safe(block.rule), "bold"), "  ", (block.severity, style))
    if block.cost:
        head.append(f"  {safe(block.cost)}", style="dim")
    parts: list[RenderableType] = [head]
    parts += [_indent(_text(text)) for text in (block.title, block.detail) if text]
    parts += [_bullet(item, "dim") for item in block.evidence]
    if block.evidence_left_out:
        parts.append(_bullet(f"and {block.evidence_left_out} more: --all", "italic"))
    if block.fix:
        parts.append(_indent(Text.assemble(("Fix: ", "bold green"), _text(block.fix))))
    return Group(*parts)


def _table(table: Table, width: int, whole: bool) -> Iterable[RenderableType]:
    yield _text(table.title, "bold")
    if table.about:
        yield _indent(_text(table.about, "dim"))
    if table.rows:
        yield _grid(table, width, whole)
    if table.left_out:
        yield _indent(_text(f"and {table.left_out} more: --all", "italic"))
    for note in table.footnotes:
        yield _bullet(note, "dim")


def _grid(table: Table, width: int, whole: bool) -> RichTable:
    rank = 2 if width >= _WIDE else 1
    shown = [index for index, column in enumerate(table.columns) if column.rank <= rank]
    columns = [table.columns[index] for index in shown]
    rows = [[safe(row[index]) for index in shown] for row in table.rows]
    widths = [max(width_of(cell) for cell in cells) for cells in zip(*rows, [c.name for c in columns], strict=True)]
    if not whole:
        widths = fit_names(columns, widths, width)
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1), header_style="dim")
    for column, longest in zip(columns, widths, strict=True):
        grid.add_column(
            Text(column.name),
            justify="right" if column.right else "left",
            no_wrap=column.right or longest <= width // 6,
            overflow="fold",
            style="cyan" if column.code and column is columns[0] else "",
        )
    for row in rows:
        cells = row if whole else [shorten(*cell) if cell[2] else cell[0] for cell in _cells(row, widths, columns)]
        grid.add_row(*map(Text, cells))
    return grid


def _cells(row: list[str], widths: list[int], columns: list[Column]) -> Iterable[tuple[str, int, bool]]:
    return zip(row, widths, (column.code for column in columns), strict=True)


def fit_names(columns: list[Column], widths: list[int], width: int) -> list[int]:
    """Return column widths at which a row fits `width`: columns of names give way, the longest first."""
    widths = list(widths)
    names = [index for index, column in enumerate(columns) if column.code]
    spare = width - sum(widths) - _GAP * (len(widths) - 1)
    while spare < 0 and names:
        longest = max(names, key=lambda index: widths[index])
        if widths[longest] <= _LEAST_NAME:
            break
        widths[longest] -= 1
        spare += 1
    return widths


def shorten(name: str, width: int, _is_name: bool = True) -> str:
    """Return a name, or a list of them, in at most `width` columns: 'gradients/lo…ency_1', 'conv1/Relu +2'."""
    if width_of(name) <= width:
        return name
    first, *others = name.split(", ")
    tail = f" +{len(others)}" if others else ""
    return printable(first, max(1, width - len(tail))) + tail
