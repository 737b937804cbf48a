"""The report as GitHub Markdown, for an issue, a pull request or a wiki."""

from __future__ import annotations

import re

from tfplace.report.model import Report
from tfplace.report.page import EVERYTHING, FILE, FindingBlock, Page, build_page
from tfplace.report.tables import Table
from tfplace.report.wording import safe

_SPECIAL = re.compile(r"([\\`*\[\]|~#])")
_EDGE_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")  # inside a word GitHub leaves _ alone
_LIST_START = re.compile(r"^(\s*)([-+=]|\d+[.)])(?=\s|$|=|-)")
_TICKS = re.compile(r"`+")
_MENTION = re.compile(r"@(?=\w)")


def render_markdown(report: Report, show_all: bool = False) -> str:
    """Return the report as Markdown: every row of every table, and at most 5 findings unless `show_all`."""
    return draw_page(build_page(report, EVERYTHING if show_all else FILE))


def draw_page(page: Page) -> str:
    """Return a laid-out page as Markdown."""
    blocks = ["# TensorFlow placement and transfers"]
    blocks += [prose(text) for text in (*page.head, *page.trust)]
    blocks += [f"**{prose(page.verdict)}**"]
    if page.findings:
        blocks.append("## Findings")
        blocks += [_finding(block) for block in page.findings]
    if page.findings_left_out:
        blocks.append(f"And {page.findings_left_out} more: `--all`")
    blocks += [prose(text) for text in page.rules]
    blocks.append("## Answers")
    blocks += [f"**{prose(question)}** {prose(answer)}" for question, answer in page.answers]
    for table in page.tables:
        blocks.append(draw_table(table))
    if page.notes:
        blocks.append("## Notes")
        blocks.append("\n".join(f"- {prose(note)}" for note in page.notes))
    return "\n\n".join(blocks) + "\n"


def _finding(block: FindingBlock) -> str:
    cost = f": {prose(block.cost)}" if block.cost else ""
    parts = [f"### {block.number}. `{block.rule}` ({block.severity}){cost}"]
    parts += [prose(text) for text in (block.title, block.detail) if text]
    evidence = [f"- {prose(item)}" for item in block.evidence]
    if block.evidence_left_out:
        evidence.append(f"- and {block.evidence_left_out} more")
    if evidence:
        parts.append("\n".join(evidence))
    if block.fix:
        parts.append(f"**Fix:** {prose(block.fix)}")
    return "\n\n".join(parts)


def draw_table(table: Table) -> str:
    """Return a table with its heading."""
    parts = [f"## {prose(table.title)}"]
    if table.about:
        parts.append(prose(table.about))
    if table.rows:
        heads = [prose(column.name) for column in table.columns]
        rule = ["---:" if column.right else "---" for column in table.columns]
        codes = [column.code for column in table.columns]
        rows = [[code(cell) if is_code else _inline(cell) for cell, is_code in zip(row, codes, strict=True)]
                for row in table.rows]  # fmt: skip
        parts.append("\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)))
    if table.left_out:
        parts.append(f"and {table.left_out} more: `--all`")
    return "\n\n".join(parts)


def prose(text: str) -> str:
    """Return text in which nothing is markup: neither Markdown nor HTML, nor a mention of a person."""
    return "  \n".join(_inline(line) for line in text.splitlines())


def _inline(text: str) -> str:
    clean = safe(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    clean = _SPECIAL.sub(r"\\\1", clean)
    clean = _EDGE_UNDERSCORE.sub(r"\\_", clean)
    clean = _MENTION.sub("@&#8203;", clean)  # a zero-width space: GitHub would notify @name
    return _LIST_START.sub(r"\1\\\2", clean)


def code(text: str) -> str:
    """Return a name as a code span that fits a table cell; '' stays ''."""
    text = safe(text)
    if not text:
        return ""
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", r"\|")
