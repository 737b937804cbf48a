"""Input that is no trace, is damaged, or is out to do harm: one sentence and exit code 2, or a report with a note."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.cli.support import one_line_error, step, tfplace, tfplace_bytes, write_step

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
COMMANDS = (("report",), ("info",))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.pb", b""),
        ("blank.pbtxt", b" \n\n"),
        ("picture.png", PNG),
        ("words.txt", b"Once upon a time there was a step.\n"),
        ("page.html", b"<!DOCTYPE html><html><body>hello</body></html>"),
        ("other.json", b'{"hello": "world"}'),
        ("list.json", b"[1, 2, 3]"),
        ("zip.gz", b"\x1f\x8b\x08\x00garbage"),
        ("noise.pb", bytes(range(256)) * 8),
    ],
)
def test_what_is_no_trace_is_one_sentence(command: tuple[str, ...], name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert name in one_line_error(tfplace(*command, tmp_path / name))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "missing.pb" in one_line_error(tfplace("report", tmp_path / "missing.pb"))


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "empty" in one_line_error(tfplace("report", tmp_path / "empty"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    closed = write_step(tmp_path / "closed.pb")
    closed.chmod(0)
    assert "closed.pb" in one_line_error(tfplace("report", closed))


def test_an_empty_standard_input_is_one_sentence() -> None:
    one_line_error(tfplace("report", "-", stdin=b""))


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("form", ["binary", "text"])
def test_a_file_cut_anywhere_is_a_report_with_a_note_or_one_sentence(form: str, share: float, tmp_path: Path) -> None:
    whole = step().SerializeToString() if form == "binary" else str(step()).encode()
    cut = tmp_path / "cut.pb"
    cut.write_bytes(whole[: int(len(whole) * share)])
    done = tfplace("report", cut, "--format", "json")
    if done.returncode == 0:
        assert json.loads(done.stdout)["notes"]
    else:
        one_line_error(done)


def test_a_very_long_name_is_shortened_on_the_page_and_whole_in_json(tmp_path: Path) -> None:
    long = "layer/" * 1700 + "w"  # 10 kB
    trace = write_step(tmp_path / "long.pb", long)
    text = tfplace("report", trace)
    assert text.returncode == 0
    assert max(map(len, text.stdout.split())) < 1000
    said = json.loads(tfplace("report", trace, "--format", "json").stdout)
    assert said["variables"][0]["name"] == long


@pytest.mark.parametrize("format_", ["text", "markdown", "json"])
def test_names_with_escapes_and_html_do_no_harm(format_: str, tmp_path: Path) -> None:
    name = "w\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>\u202e|`x`"
    trace = write_step(tmp_path / "hostile.pbtxt", name)
    done = tfplace_bytes("report", trace, "--format", format_)
    assert done.returncode == 0
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", done.stdout + done.stderr)
    assert "\u202e" not in done.stdout.decode()
    assert b"alert(1)" in done.stdout
    if format_ == "markdown":
        outside_code = re.sub(rb"(?<![\\`])(`+)(?!`).+?(?<!`)\1(?!`)", b"", done.stdout)
        assert b"<script" not in outside_code
    if format_ == "json":
        assert json.loads(done.stdout)["variables"][0]["name"] == name


@pytest.mark.parametrize("table", ["nodes", "transfers", "variables"])
def test_shown_tables_do_no_harm_either(table: str, tmp_path: Path) -> None:
    trace = write_step(tmp_path / "hostile.pbtxt", "w\x1b[2J\u202e")
    done = tfplace_bytes("show", trace, table)
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout
    assert b"\\x1b[2J" in done.stdout


def test_an_error_message_shows_no_raw_escapes(tmp_path: Path) -> None:
    done = tfplace_bytes("report", tmp_path / "a\x1b[2J\nb.pb")
    assert done.returncode == 2
    assert b"\x1b" not in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_recorded_traces_never_give_a_traceback(recorded: Path) -> None:
    for path in sorted(recorded.iterdir()):
        if path.suffix in (".md", ".tsv") or path.name == "EXPECTED.json":
            continue
        done = tfplace("report", path)
        assert done.returncode in (0, 2), (path.name, done.stderr)
        if done.returncode == 2:
            one_line_error(done)
        else:
            assert done.stderr == ""
            assert "Failed, by a fault" not in done.stdout, path.name
