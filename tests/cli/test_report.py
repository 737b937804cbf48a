"""`tfplace report` as a process: the same numbers in every format, the output file, steps, standard input."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import ROOT, TRACES, one_line_error, step, tfplace, tfplace_bytes, write_step
from tests.golden import compare
from tfplace import build_report, load
from tfplace.report.json_report import render_json
from tfplace.report.markdown import render_markdown
from tfplace.report.plain import render_text
from tfplace.units import format_bytes

ALL_TRACES = sorted(
    path.relative_to(TRACES).as_posix()
    for path in TRACES.iterdir()
    if path.name.endswith((".pb", ".pbtxt", ".gz")) or path.name.endswith("_steps")
)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_step(tmp_path_factory.mktemp("step") / "step.pb")


def report_json(*arguments: str | Path) -> Any:
    done = tfplace("report", *arguments, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


# ---------------------------------------------------------------- the numbers


def test_a_step_worked_out_by_hand(trace: Path) -> None:
    report = report_json(trace)
    assert report["schema"] == "tfplace.report/1"
    assert [device["name"] for device in report["devices"]] == ["CPU:0", "GPU:0"]
    per_step = report["totals"]["per_step"]
    assert per_step["h2d"] == {"count": 1, "bytes": 24, "time_us": 4, "unknown_sizes": 0}
    assert per_step["d2h"] == {"count": 1, "bytes": 24, "time_us": 6, "unknown_sizes": 0}
    assert report["totals"]["exposed_copy_us"] == 10  # no kernel runs at 20-24 or 75-81 us
    assert report["totals"]["step_time_us"] == 100
    assert report["totals"]["gpu_busy_share"] == 0.4  # 30 to 70 us
    [weight] = report["variables"]
    assert (weight["name"], weight["bytes"], weight["copied_each_step"]) == ("w", 24, True)
    assert (weight["read_bytes_per_step"], weight["written_bytes_per_step"]) == (24, 24)
    up = next(t for t in report["transfers"] if t["direction"] == "H2D")
    assert (up["edge"], up["evidence"], up["src_memory"]) == ("edge_1_w/read", "both", "pageable")
    assert (up["producer"], up["consumers"]) == ("w/read", ["relu", "grad"])


@pytest.mark.parametrize("name", ALL_TRACES)
def test_every_format_says_the_same_numbers(name: str) -> None:
    report = build_report(load(TRACES / name))
    assert_same_numbers(json.loads(render_json(report)), render_text(report), render_markdown(report))


@pytest.mark.parametrize("name", ALL_TRACES)
def test_people_read_sizes_in_one_form(name: str) -> None:
    """'7.7 kB' in tables, findings and answers alike, never '7,680 bytes' too."""
    text = " ".join(render_text(build_report(load(TRACES / name)), show_all=True).split())
    assert not re.search(r"[\d,]+ bytes", text)


def test_every_format_says_the_same_numbers_as_a_process(trace: Path) -> None:
    text = tfplace("report", trace).stdout
    assert_same_numbers(report_json(trace), text, tfplace("report", trace, "--format", "markdown").stdout)


def assert_same_numbers(said: Any, text: str, markdown: str) -> None:
    plain = " ".join(text.split())
    unmarked = " ".join(re.sub(r"\\(.)", r"\1", markdown).replace("&gt;", ">").replace("&lt;", "<").split())
    assert said["verdict"] in plain
    assert f"**{said['verdict']}**" in unmarked
    for answer in said["answers"].values():
        assert answer in plain
        assert answer in unmarked
    for variable in said["variables"]:
        size = "?" if variable["bytes"] is None else format_bytes(variable["bytes"])
        cells = [variable["name"], variable["device"], size, variable["verdict"]]
        assert_row(text, markdown, cells)
    for transfer in said["transfers"]:
        size = "?" if transfer["bytes"] is None else format_bytes(transfer["bytes"])
        cells = [
            transfer["direction"],
            transfer["tensor"],
            size,
            transfer["evidence"],
            ", ".join(transfer["consumers"]),
        ]
        assert_row(text, markdown, cells)
    for way, total in said["totals"]["per_step"].items():
        if total["count"]:
            assert_row(text, markdown, [f"{way.upper()}, ", f"{total['count']:g}", format_bytes(total["bytes"])])


def assert_row(text: str, markdown: str, cells: list[str]) -> None:
    """Assert that one line of each holds all the cells, in any order."""
    for page in (text, re.sub(r"\\([|_*])", r"\1", markdown)):
        assert any(all(cell in line for cell in cells) for line in page.splitlines()), cells


@pytest.mark.parametrize("name", ALL_TRACES)
def test_reports_of_our_traces_are_as_read_by_eye(name: str) -> None:
    done = tfplace("report", f"traces/{name}")
    assert (done.returncode, done.stderr) == (0, "")
    compare(f"report/{name.split('.')[0]}.txt", done.stdout)


# ---------------------------------------------------------------- input


def test_standard_input_is_read(trace: Path) -> None:
    done = tfplace("report", "-", stdin=trace.read_bytes())
    assert done.returncode == 0
    assert "1 step, CPU:0 and GPU:0" in done.stdout


def test_text_and_gzip_say_the_same_as_binary(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "step.pbtxt").write_text(str(step()))
    (tmp_path / "step.pb.gz").write_bytes(gzip.compress(trace.read_bytes()))
    reports = [report_json(path) for path in (trace, tmp_path / "step.pbtxt", tmp_path / "step.pb.gz")]
    for report in reports:
        del report["trace"]
    assert reports[0] == reports[1] == reports[2]


def test_several_files_are_several_steps_and_step_chooses_one(tmp_path: Path) -> None:
    first, second = write_step(tmp_path / "a.pb"), write_step(tmp_path / "b.pb", scale=3)
    both = report_json(first, second)
    assert both["trace"]["traced_steps"] == [1, 2]
    assert both["totals"]["per_step"]["h2d"]["bytes"] == 48  # 24 and 72
    second_only = report_json(first, second, "--step", "2")
    assert second_only["trace"]["traced_steps"] == [2]
    assert second_only["totals"]["per_step"]["h2d"]["bytes"] == 72
    folder = report_json(tmp_path)
    assert folder["totals"] == both["totals"]


def test_an_unknown_step_lists_the_steps(trace: Path) -> None:
    assert "no step 9. Its steps: 1" in one_line_error(tfplace("report", trace, "--step", "9"))


def test_an_unknown_accelerator_lists_the_devices(trace: Path) -> None:
    error = one_line_error(tfplace("report", trace, "--accelerator", "CPU:7"))
    assert "CPU:7" in error
    assert "CPU:0" in error


def test_bus_speed_changes_estimates_only(tmp_path: Path) -> None:
    weights = "traces/cifar10_weights_on_cpu.pbtxt"
    slow, fast = (report_json(weights, "--bus-gbps", speed) for speed in ("1", "10"))
    costs = [next(f for f in r["findings"] if f["rule"] == "variable-on-cpu")["cost_us_per_step"] for r in (slow, fast)]
    assert costs[0] == pytest.approx(10 * costs[1])
    assert "(estimate)" in slow["verdict"]
    assert slow["trace"]["bus_gbps"] == 1
    one_line_error(tfplace("report", weights, "--bus-gbps", "0"))


# ---------------------------------------------------------------- output


def test_an_output_file_is_written_and_never_overwritten_unasked(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    done = tfplace("report", trace, "--format", "json", "-o", target)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"tfplace: wrote {target}\n"
    assert json.loads(target.read_text())["schema"] == "tfplace.report/1"
    assert "--force" in one_line_error(tfplace("report", trace, "-o", target))
    assert tfplace("report", trace, "-o", target, "--force").returncode == 0
    assert target.read_text() == tfplace("report", trace).stdout


def test_a_bad_output_path_is_told_before_reading(tmp_path: Path) -> None:
    error = one_line_error(tfplace("report", tmp_path / "missing.pb", "-o", tmp_path / "nowhere" / "r.txt"))
    assert "folder" in error
    assert "missing.pb" not in error


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_sentence(trace: Path) -> None:
    assert "No space left" in one_line_error(tfplace("report", trace, "-o", "/dev/full"))


def test_piped_text_is_plain(trace: Path) -> None:
    done = tfplace_bytes("report", trace)
    assert b"\x1b" not in done.stdout
    assert done.stdout.isascii()


def test_a_closed_pipe_is_silent(trace: Path) -> None:
    reader = subprocess.Popen(
        [sys.executable, "-m", "tfplace", "show", "traces/cifar10_weights_on_cpu.pbtxt", "nodes", "--format", "json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert reader.stdout is not None
    assert reader.stderr is not None
    reader.stdout.read(10)
    reader.stdout.close()
    assert reader.stderr.read() == b""
    reader.stderr.close()
    assert reader.wait() == 0


def test_names_that_stdout_cannot_encode_are_escaped(tmp_path: Path) -> None:
    named = write_step(tmp_path / "u.pb", "gewichte/ü中")
    done = tfplace_bytes("report", named, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"gewichte/\\xfc\\u4e2d" in done.stdout
