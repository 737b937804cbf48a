"""Where there is more than a viewer takes: whole steps and all transfers are drawn, and a word says what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tfplace.report.timeline.flows import keep_arrows
from tfplace.report.timeline.model import NONE, Int, Slices, Timeline
from tfplace.report.wording import count_of

DEFAULT_MAX_EVENTS = 500_000
"""Perfetto takes 6 s to load so many, and chrome://tracing becomes slow to use beyond."""

_SENTENCES = 2  # that say what is left out; each is drawn as a bar

Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Choice:
    """What is drawn.

    Attributes:
        keep: bool[N], slices.
        left_out: Sentences on the others; none where all are drawn.
    """

    keep: Bool
    left_out: tuple[str, ...] = ()


def limit_events(timeline: Timeline, always: Bool, max_events: int) -> tuple[Timeline, tuple[str, ...]]:
    """Return the timeline with at most so many events, and sentences on what is left out.

    Args:
        timeline: With everything.
        always: bool[N], slices that stay in any case: transfers and the timeline's own.
        max_events: The most; more only where transfers and counters alone are more.
    """
    slices, arrows = timeline.slices, timeline.arrows
    total = timeline.event_count
    if total <= max_events:
        return timeline, ()
    # an arrow stands or falls with the slice that may be left out; between transfers it stands
    ends = np.where(always[arrows.target], arrows.source, arrows.target)
    cost = 1 + 2 * np.bincount(ends, minlength=len(slices))
    room = max_events - (total - int(cost[~always].sum())) - _SENTENCES
    choice = choose_slices(slices, always, cost, room, timeline.step_names)
    new_number = np.where(choice.keep, np.cumsum(choice.keep) - 1, NONE)
    smaller = replace(timeline, slices=slices.take(np.flatnonzero(choice.keep)), arrows=keep_arrows(arrows, new_number))
    remedy = (
        f"The limit is {count_of(max_events, 'event')}, the whole makes {total:,}: "
        "--steps A:B draws other steps, --max-events N more, --all everything."
    )
    return smaller, (*choice.left_out, remedy)


def choose_slices(slices: Slices, always: Bool, cost: Int, room: int, names: Sequence[str]) -> Choice:
    """Choose slices: those of `always`, then whole steps from the first on while there is room.

    Where not even the first step fits, its longest slices are drawn.

    Args:
        slices: All slices.
        always: bool[N], drawn in any case.
        cost: int64[N], events that each slice brings with it.
        room: Events that there is room for, beside those of `always`.
        names: What people call the steps.
    """
    optional = np.flatnonzero(~always)
    step = np.where(slices.step[optional] == NONE, len(names), slices.step[optional])
    price = np.bincount(step, weights=cost[optional], minlength=len(names) + 1).astype(np.int64)
    fitting = int(np.searchsorted(np.cumsum(price[:-1]), room, side="right")) if room > 0 else 0
    used = np.flatnonzero(price)
    keep = always.copy()
    if not len(used) or fitting > used[0]:
        keep[optional[step < fitting]] = True
        return Choice(keep, (_steps_note(fitting, names, bool(price[-1])),))
    rows = optional[step == used[0]]
    order = rows[np.argsort(slices.start[rows] - slices.end[rows], kind="stable")]
    longest = int(np.searchsorted(np.cumsum(cost[order]), max(room, 0), side="right"))
    keep[order[:longest]] = True
    where = f"step {names[used[0]]}" if used[0] < len(names) else "what lies outside the steps"
    note = f"Drawn are all transfers and the {longest:,} longest of the {len(rows):,} other events of {where}"
    return Choice(keep, (note + (f", of {len(names)} steps." if len(names) > 1 else "."),))


def _steps_note(fitting: int, names: Sequence[str], outside: bool) -> str:
    which = f"step {names[0]}" if fitting == 1 else f"steps {names[0]} to {names[fitting - 1]}"
    rest = "; nothing outside the steps" if outside else ""
    return f"Drawn are all transfers and the whole of {which}, of {len(names)} steps{rest}."
