"""Write docs/cli.md: what `tfplace -h` and each command's `-h` print.

    python docs/make_cli_reference.py

A test compares the page with the commands.
"""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from tfplace.cli import cli

OUTPUT = Path(__file__).parent / "cli.md"


def reference() -> str:
    """Return the page."""
    parts = ["# Command line", _help()]
    for name in cli.commands:
        parts += [f"## tfplace {name}", _help(name)]
    parts.append(
        "Results go to standard output, talk and progress to standard error. Exit codes: 0 fine, 2 wrong usage or input"
        "\nthat cannot be read, 3 a fault of tfplace's own, 130 interrupted. `record` and `simulate` end as the program"
        "\ndoes, and with 2 where it succeeded but left no trace ([why](capture.md#when-there-is-no-trace))."
    )
    return "\n\n".join(parts) + "\n"


def _help(*command: str) -> str:
    words = [*command, "-h"]
    text = CliRunner().invoke(cli, words, prog_name="tfplace", terminal_width=100).output
    return f"```console\n$ tfplace {' '.join(words)}\n{text.strip()}\n```"


if __name__ == "__main__":
    OUTPUT.write_text(reference(), encoding="utf-8")
    print(OUTPUT)
