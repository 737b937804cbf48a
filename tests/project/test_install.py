"""The package installs by itself, without TensorFlow, and its first command works there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with nothing but `pip install .` in it; returns its bin folder."""
    home = tmp_path_factory.mktemp("bare")
    source = home / "source"  # a copy, so that building leaves nothing in the checkout
    leave = shutil.ignore_patterns(".git", ".*_cache", "__pycache__", "build", "*.egg-info")
    shutil.copytree(ROOT, source, ignore=leave)
    subprocess.run([sys.executable, "-m", "venv", str(home / "env")], check=True)
    scripts = home / "env" / ("Scripts" if sys.platform == "win32" else "bin")
    done = subprocess.run(
        [scripts / "python", "-m", "pip", "install", "-q", str(source)], capture_output=True, text=True, check=False
    )
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    return scripts


def run(bare: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [bare / "tfplace", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, encoding="utf-8"
    )


def test_it_has_no_tensorflow_and_reports_all_the_same(bare: Path) -> None:
    missing = subprocess.run([bare / "python", "-c", "import tensorflow"], capture_output=True, check=False, cwd="/")
    assert missing.returncode != 0
    done = run(bare, "report", "traces/cifar10_weights_on_cpu.pbtxt", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert sum(v["bytes"] for v in report["variables"]) == 4_273_192


@pytest.mark.parametrize(
    "command", ["--version", "rules", "info traces/input_feed_steps", "show traces/input_feed.pbtxt nodes"]
)
def test_other_commands_need_no_test_dependency_either(bare: Path, command: str) -> None:
    done = run(bare, *command.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_asking_the_missing_tensorflow_is_one_clear_sentence(bare: Path, tmp_path: Path) -> None:
    text = (ROOT / "traces/input_feed.pbtxt").read_text(encoding="utf-8")
    answers = "\n".join(line for line in text.splitlines() if not line.startswith("# tfplace: "))
    (tmp_path / "plain.pbtxt").write_text(answers, encoding="utf-8")  # one that holds no answers of its own
    done = run(bare, "report", str(tmp_path / "plain.pbtxt"), "--kernels-from", "tensorflow")
    assert done.returncode == 2
    assert done.stderr.startswith("tfplace: error: ")
    assert len(done.stderr.strip().splitlines()) == 1
