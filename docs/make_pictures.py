"""Draw the README's picture: the top of a real report, as a terminal shows it.

    python docs/make_pictures.py

It reports on a trace of this repository, from its root, and writes docs/pictures/report.svg.
"""

from __future__ import annotations

import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tfplace.api import load
from tfplace.report.build import build_report
from tfplace.report.terminal import render_terminal

TRACE = "traces/cifar10_weights_on_cpu.pbtxt"
OUTPUT = Path(__file__).parent / "pictures" / "report.svg"
WIDTH = 108
LINES = 44


def main() -> None:
    """Write the picture."""
    shown = render_terminal(build_report(load(TRACE)), WIDTH, color_system="truecolor")
    console = Console(record=True, width=WIDTH, file=open("/dev/null", "w", encoding="utf-8"), force_terminal=True)  # noqa: SIM115
    console.print(Text(f"$ tfplace report {TRACE}", style="bold green"))
    console.print(Text.from_ansi("\n".join(shown.splitlines()[:LINES])), crop=True)
    OUTPUT.parent.mkdir(exist_ok=True)
    svg = console.export_svg(title="tfplace", unique_id="tfplace-report")
    # no fonts from the network: whoever looks at the picture asks nobody else
    OUTPUT.write_text(re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL), encoding="utf-8")
    print(OUTPUT)


if __name__ == "__main__":
    main()
