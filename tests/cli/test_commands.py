"""The command line around the report: help, show, info, rules, exit codes, speed of a start."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tfplace as package
from tests.cli.support import ROOT, TRACES, one_line_error, tfplace, write_step
from tfplace.cli import cli
from tfplace.cli.options import TABLES
from tfplace.diagnose.rules import ALL_RULES
from tfplace.model import schema

COMMANDS = ("report", "show", "info", "rules")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_step(tmp_path_factory.mktemp("step") / "step.pb")


# ---------------------------------------------------------------- help and exit codes


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_names_every_command(option: str) -> None:
    done = tfplace(option)
    assert done.returncode == 0
    assert re.findall(r"^  (\w+) ", done.stdout.split("Commands:\n")[1], re.M) == list(cli.commands)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_an_example_that_runs(command: str) -> None:
    done = tfplace(command, "-h")
    assert done.returncode == 0
    examples = [line.split()[1:] for line in done.stdout.splitlines() if line.strip().startswith("tfplace ")]
    assert examples
    for example in examples:
        real = ["traces/cifar10_weights_on_cpu.pbtxt" if word == "trace.pbtxt" else word for word in example]
        if "-o" not in real:
            assert tfplace(*real).returncode == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(command: str) -> None:
    options = tfplace(command, "-h").stdout.split("Options:\n")[1]
    for entry in re.split(r"\n(?=  -)", options.rstrip()):
        words = re.sub(r"^\s+(-\S+|[A-Z/]+|\[[a-z|]+\])", "", " ".join(entry.split()))
        assert len(words.split()) >= 3, entry


def test_version() -> None:
    assert tfplace("--version").stdout == f"tfplace, version {package.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [(), ("report",), ("nonsense",), ("report", "--nonsense", "x"), ("report", "x", "--format", "pdf")]
)
def test_usage_errors_are_exit_code_2(arguments: tuple[str, ...]) -> None:
    done = tfplace(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("asked", ["nothing", "option", "variable"])
def test_our_own_faults_are_exit_code_3_and_show_a_traceback_only_when_asked(
    asked: str, trace: Path, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import tfplace.report.build as build\n"
        "def fail(*a, **k): raise ValueError('boom\\x1b[2J')\n"
        "build.summarize = fail\n"
    )
    arguments = ["report", str(trace)] + (["--traceback"] if asked == "option" else [])
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "TFPLACE_DEBUG": "1" if asked == "variable" else "0"}
    done = tfplace(*arguments, **environment)
    assert (done.returncode, done.stdout) == (3, "")
    assert ("Traceback" in done.stderr) == (asked != "nothing")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("tfplace: sorry, a fault of tfplace's own: ValueError: boom\\x1b[2J. Run it again with")
    assert "--traceback" in last


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_is_quiet() -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "tfplace", "report", "-"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdin is not None
    running.stdin.write(b" " * (1 << 20))  # more than a pipe holds: written only once standard input is being read
    running.stdin.flush()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err.strip()) == (130, b"", b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "arguments", ["report TRACE", "info TRACE", "rules", "show TRACE copies", "timeline TRACE -o -"]
)
def test_a_full_disk_behind_stdout_is_one_sentence(arguments: str) -> None:
    words = arguments.replace("TRACE", "traces/input_feed.pbtxt").split()
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tfplace", *words],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "tfplace: error: cannot write standard output: No space left on device. The disk is full; nothing was written."
    ]


# ---------------------------------------------------------------- show


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_shown_alike_in_every_format(table: str, trace: Path) -> None:
    objects = json.loads(tfplace("show", trace, table, "--format", "json").stdout)
    rows = list(csv.reader(io.StringIO(tfplace("show", trace, table, "--format", "csv").stdout)))
    text = tfplace("show", trace, table).stdout.splitlines()
    assert len(objects) == len(rows) - 1 == len(text) - 1
    if objects:
        assert list(objects[0]) == rows[0]
    if table in schema.TABLES:
        assert rows[0] == [column.name for column in schema.TABLES[table]]
    assert text[0].split() == rows[0]


def test_every_table_of_the_schema_can_be_shown() -> None:
    assert set(schema.TABLES) < set(TABLES)


def test_csv_keeps_values_exactly(tmp_path: Path) -> None:
    name = 'a,"b"\n\x1b[31m'
    hostile = write_step(tmp_path / "t.pbtxt", name)
    rows = list(csv.DictReader(io.StringIO(tfplace("show", hostile, "variables", "--format", "csv").stdout)))
    assert rows[0]["name"] == name
    assert rows[0]["num_bytes"] == "24"
    assert rows[0]["source"] == ""  # unknown
    assert json.loads(rows[0]["destinations"]) == [1]


def test_findings_can_be_shown() -> None:
    done = tfplace("show", "traces/cifar10_weights_on_cpu.pbtxt", "findings", "--format", "json")
    assert "variable-on-cpu" in [finding["rule"] for finding in json.loads(done.stdout)]


def test_an_unknown_table_lists_the_tables(trace: Path) -> None:
    error = one_line_error(tfplace("show", trace, "nonsense"))
    assert all(table in error for table in TABLES)
    assert "tfplace show" in one_line_error(tfplace("show", trace))
    assert "tfplace show" in one_line_error(tfplace("show", "transfers"))
    assert "tfplace show" in one_line_error(tfplace("show"))


# ---------------------------------------------------------------- info and rules


def test_info_says_what_a_file_holds(trace: Path) -> None:
    facts = json.loads(tfplace("info", trace, "--format", "json").stdout)
    assert (facts["has_graphs"], facts["has_times"], facts["has_device_times"]) == (True, True, True)
    assert [device["name"] for device in facts["devices"]] == ["CPU:0", "GPU:0"]
    assert facts["counts"]["copies"] == 2
    assert facts["copies"] == [
        {"direction": "D2H", "count": 1, "bytes": 24, "unknown_sizes": 0},
        {"direction": "H2D", "count": 1, "bytes": 24, "unknown_sizes": 0},
    ]
    assert facts["events"] == {"kernel": 2, "memcpy": 2, "op": 4}
    assert [step["step"] for step in facts["steps"]] == [1]
    text = tfplace("info", trace).stdout
    assert re.search(r"format +RunMetadata binary", text)
    assert re.search(r"H2D +1 +24 B", text)
    assert re.search(r"holds +partition graphs, step times, accelerator times$", text, re.M)


def test_info_does_not_call_simulated_times_a_gpus() -> None:
    text = tfplace("info", TRACES / "keras_fit.pb").stdout
    assert re.search(
        r"holds +partition graphs, step times, times of simulated accelerators \(not a GPU's\)$", text, re.M
    )


def test_rules_are_listed_and_explained() -> None:
    listed = [line.split()[0] for line in tfplace("rules").stdout.splitlines()[1:]]
    assert listed == [rule.slug for rule in ALL_RULES]
    text = tfplace("rules", "variable-on-cpu").stdout
    assert re.search(r"bus_gbps +12 +GB/s", text)
    assert "docs/rules.md of tfplace's source, section variable-on-cpu" in text


def test_an_unknown_rule_lists_the_rules() -> None:
    error = one_line_error(tfplace("rules", "nonsense"))
    assert all(rule.slug in error for rule in ALL_RULES)


# ---------------------------------------------------------------- what a start imports


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], ["pandas", "numpy", "google.protobuf", "rich"]),
        (["report", "--help"], ["pandas", "numpy", "google.protobuf", "rich"]),
        (["report", "traces/cifar10_weights_on_cpu.pbtxt"], ["tensorflow", "plotly", "rich"]),
        (["report"], ["pandas"]),
    ],
)
def test_a_start_imports_no_more_than_it_needs(arguments: list[str], absent: list[str]) -> None:
    code = (
        "import sys\nfrom tfplace.cli import main\n"
        f"main({arguments!r})\nprint('imported:', [m for m in {absent!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "imported: []"


def test_public_names_load_lazily_and_work(trace: Path) -> None:
    code = (
        "import sys, tfplace\n"
        "assert 'pandas' not in sys.modules\n"
        "assert {'load', 'build_report', 'Trace', 'Finding', 'Report'} <= set(dir(tfplace))\n"
        f"report = tfplace.build_report(tfplace.load({str(trace)!r}))\n"
        "assert isinstance(report, tfplace.Report)\n"
        "assert all(isinstance(f, tfplace.Finding) for f in report.findings)\n"
        "print(report.totals['per_step']['h2d']['bytes'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("24\n", "")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = package.nonsense


# ---------------------------------------------------------------- a real terminal


def in_terminal(arguments: list[str], columns: int) -> str:
    """Run tfplace with stdout on a pseudo terminal and return what it wrote."""
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    running = subprocess.Popen(
        [sys.executable, "-m", "tfplace", *arguments],
        cwd=ROOT,
        stdout=slave,
        stderr=slave,
        stdin=slave,
        env=environment,
    )
    os.close(slave)
    chunks = []
    while select.select([master], [], [], 60)[0]:
        try:
            chunk = os.read(master, 65536)
        except OSError:
            break
        if not chunk:
            break
        chunks.append(chunk)
    assert running.wait() == 0
    os.close(master)
    return b"".join(chunks).decode()


def test_a_terminal_gets_colour_and_lines_that_fit() -> None:
    written = in_terminal(["report", "traces/cifar10_weights_on_cpu.pbtxt"], 80)
    assert "\x1b[1m" in written
    lines = re.sub(r"\x1b\[[0-9;]*m", "", written).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("more: --all" in line for line in lines)


def test_csv_in_a_terminal_is_made_safe(tmp_path: Path) -> None:
    hostile = write_step(tmp_path / "t.pbtxt", "w\x1b[2J")
    written = in_terminal(["show", str(hostile), "variables", "--format", "csv"], 80)
    assert "\x1b" not in written
    assert "w\\x1b[2J" in written
