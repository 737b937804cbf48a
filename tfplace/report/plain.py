"""Plain text for files and pipes: no colour, nothing cut, one table row per line."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

from tfplace.report.model import Report
from tfplace.report.page import EVERYTHING, FILE, FindingBlock, Page, build_page
from tfplace.report.tables import Table
from tfplace.report.wording import safe

PROSE_WIDTH = 100
_MAX_COLUMN = 80  # longer cells stand out of their column, so that one long name does not push all others away


def render_text(report: Report, show_all: bool = False) -> str:
    """Return the report as plain text: every row of every table, and at most 5 findings unless `show_all`."""
    return draw_page(build_page(report, EVERYTHING if show_all else FILE))


def draw_page(page: Page) -> str:
    """Return a laid-out page as plain text."""
    lines = [*_each(page.head), *_each(page.trust), "", *wrap(page.verdict), ""]
    lines += _findings(page)
    for question, answer in page.answers:
        lines += [question, *wrap(answer, "  ")]
    for table in page.tables:
        lines += ["", *draw_table(table)]
    if page.notes:
        lines += ["", "Notes"]
        for note in page.notes:
            lines += wrap(note, "- ", "  ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _each(paragraphs: Iterable[str]) -> list[str]:
    return [line for paragraph in paragraphs for line in wrap(paragraph)]


def _findings(page: Page) -> list[str]:
    lines = []
    for block in page.findings:
        lines += [*_finding(block), ""]
    if page.findings_left_out:
        lines += [f"And {page.findings_left_out} more: --all", ""]
    if page.rules:
        lines += [*_each(page.rules), ""]
    return lines


def _finding(block: FindingBlock) -> list[str]:
    head = "  ".join(filter(None, (f"{block.number} {block.rule}", block.severity, block.cost)))
    lines = [safe(head), *wrap(block.title, "  "), *wrap(block.detail, "  ")]
    for item in block.evidence:
        lines += wrap(item, "  - ", "    ")
    if block.evidence_left_out:
        lines.append(f"  - and {block.evidence_left_out} more: --all")
    return lines + wrap(f"Fix: {block.fix}", "  ") if block.fix else lines


def wrap(text: str, indent: str = "", rest: str | None = None) -> list[str]:
    """Return `text` made safe and wrapped at spaces only, so that names stay whole; line ends in it are kept."""
    rest = (" " * len(indent)) if rest is None else rest
    lines: list[str] = []
    for paragraph in text.splitlines():
        lines += textwrap.wrap(
            safe(paragraph),
            PROSE_WIDTH,
            initial_indent=indent if not lines else rest,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def draw_table(table: Table) -> list[str]:
    """Return a table as lines: heading, aligned columns two spaces apart."""
    lines = [table.title]
    if table.about:
        lines += wrap(table.about, "  ")
    if table.rows:
        heads = [column.name for column in table.columns]
        lines += align(heads, table.rows, [column.right for column in table.columns], indent="  ")
    if table.left_out:
        lines.append(f"  and {table.left_out} more: --all")
    return lines


def align(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], indent: str = "") -> list[str]:
    """Return heading and rows as lines of aligned columns; no cell is cut."""
    cells = [[safe(cell) for cell in row] for row in (heads, *rows)]
    widths = [min(_MAX_COLUMN, max(map(width_of, column))) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        parts = [_pad(cell, width, flush) for cell, width, flush in zip(row, widths, right, strict=True)]
        lines.append((indent + "  ".join(parts)).rstrip())
    return lines


def _pad(cell: str, width: int, right: bool) -> str:
    space = " " * max(0, width - width_of(cell))
    return space + cell if right else cell + space


def width_of(text: str) -> int:
    """Return how many columns of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)
