"""Small phrases that several parts of a report share."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tfplace.diagnose.facts import milliseconds
from tfplace.diagnose.rule import Finding
from tfplace.names import printable
from tfplace.units import format_bytes

MAX_NAME = 400
"""Longest name that a page shows whole; JSON and CSV have all of it."""

_LONG_WORD = re.compile(rf"\S{{{MAX_NAME + 1},}}")


def safe(text: str) -> str:
    """Return one line of text without control or direction characters; words of absurd length lose their middle."""
    if len(text) > MAX_NAME:
        text = _LONG_WORD.sub(lambda match: printable(match[0], MAX_NAME), text)
    return printable(text, limit=12 * len(text) + 12)  # an escaped character takes up to 10 places


def count_of(count: float, singular: str, plural: str | None = None) -> str:
    """Return '1 copy', '2 copies', '2.5 copies'."""
    word = singular if count == 1 else (plural or f"{singular}s")
    return f"{count:,.6g} {word}" if isinstance(count, float) and not count.is_integer() else f"{int(count):,} {word}"


def join_words(words: Sequence[str], most: int = 6) -> str:
    """Return 'a, b and c'; beyond `most` words 'a, b and 7 more'."""
    shown = list(words[:most])
    if len(words) > most:
        shown.append(f"{len(words) - most} more")
    if len(shown) < 2:
        return "".join(shown)
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def sentence(text: str) -> str:
    """Return `text` with a full stop at its end."""
    text = text.rstrip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def cost_phrase(finding: Finding) -> str | None:
    """Return '4.3 MB a step, about 0.36 ms (estimate)'; None where neither is known."""
    time = time_phrase(finding)
    if finding.bytes_per_step is None:
        return time
    size = f"{format_bytes(finding.bytes_per_step)} a step"
    return f"{size}, {time.replace(' a step', '', 1)}" if time else size


def time_phrase(finding: Finding) -> str | None:
    """Return 'about 0.36 ms a step (estimate)' or '0.4 ms a step (measured)'; None where unknown."""
    if finding.cost_ns_per_step is None:
        return None
    return timed(finding.cost_ns_per_step, finding.cost_basis)


def timed(ns: float, basis: str | None) -> str:
    """Return a cost per step with what it rests on."""
    time = milliseconds(ns)
    if basis == "measured":
        return f"{time} a step (measured)"
    about = "" if time.startswith("less") else "about "
    return f"{about}{time} a step (estimate)"
