"""README and docs speak of what there is: commands run, links lead somewhere, rules and options are documented."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tfplace.cli import cli
from tfplace.diagnose.rules import ALL_RULES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")])
SHELL = [line.removeprefix("$ ") for line in README.splitlines() if line.startswith("$ tfplace ")]


def commands() -> dict[str, click.Command]:
    assert isinstance(cli, click.Group)
    return dict(cli.commands)


def test_ci_finds_its_two_commands() -> None:
    assert re.findall(r"<!-- ci: (\w+) -->\n```console\n\$ ", README) == ["install", "test"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100


@pytest.mark.parametrize("line", SHELL)
def test_commands_of_the_readme_parse(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    words = ["traces/input_feed.pbtxt" if w.endswith((".pb", ".pbtxt")) else w for w in words]
    if words[0] not in ("record", "simulate", "timeline"):  # those have tests of their own
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, done.output


def test_readme_shows_every_command() -> None:
    assert {name for name in commands() if f"tfplace {name} " not in README} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("name", ["report", "show", "rules", "info"])
def test_help_of_every_command_is_one_line_and_an_example(name: str) -> None:
    text = CliRunner().invoke(cli, [name, "-h"]).output
    assert f"tfplace {name} " in text.split("Options:")[0].split("\n", 1)[1], "no example"
    for option in commands()[name].params:
        if isinstance(option, click.Option):
            assert option.help, f"{name} {option.name} has no help"


def test_the_command_reference_is_what_help_prints() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import make_cli_reference
    finally:
        sys.path.pop(0)
    # click's versions break lines differently: the words count
    assert make_cli_reference.OUTPUT.read_text(encoding="utf-8").split() == make_cli_reference.reference().split()


def test_the_changelog_counts_the_rules_right() -> None:
    assert f"{len(ALL_RULES)} rules" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is missing")
def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    [example] = [text for text in re.findall(r"```python\n(.*?)```", README, re.S) if "@tfplace.trace" in text]
    body = example.replace("...", "return tf.reduce_sum(tf.matmul(images, images)) + labels")
    calls = "\nfor _ in range(6):\n    train_step(tf.ones([4, 4]), tf.constant(1.0))\n"
    (tmp_path / "train.py").write_text(body + calls)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "trace.pb").stat().st_size > 0
    report = CliRunner().invoke(cli, ["report", str(tmp_path / "trace.pb")])
    assert "3 steps" in report.output
