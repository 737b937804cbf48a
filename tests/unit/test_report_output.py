"""The one place that writes results: whole files or none, and never over a file unasked."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from tfplace.errors import OutputError
from tfplace.report import output
from tfplace.report.output import check_output, write_output


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_whole_with_a_last_line_end(tmp_path):
    write_output("über", str(tmp_path / "report.txt"))
    assert (tmp_path / "report.txt").read_bytes() == "über\n".encode()
    assert left_behind(tmp_path) == ["report.txt"]


def test_dash_is_standard_output(capsys):
    write_output("report\n", "-")
    assert capsys.readouterr().out == "report\n"


def test_an_existing_file_is_refused_without_force(tmp_path):
    target = tmp_path / "report.txt"
    target.write_text("mine")
    for attempt in (check_output, lambda path: write_output("new", path)):
        with pytest.raises(OutputError, match="exists already") as caught:
            attempt(str(target))
        assert "--force" in caught.value.hint
    assert target.read_text() == "mine"


def test_force_overwrites_and_keeps_permissions(tmp_path):
    target = tmp_path / "report.txt"
    target.write_text("mine")
    target.chmod(0o640)
    write_output("new", str(target), force=True)
    assert target.read_text() == "new\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_new_file_has_the_usual_permissions(tmp_path):
    old = os.umask(0o027)
    try:
        write_output("new", str(tmp_path / "report.txt"))
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "report.txt").stat().st_mode) == 0o640


def test_a_link_keeps_pointing_at_the_file(tmp_path):
    (tmp_path / "real.txt").write_text("mine")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_output("new", str(tmp_path / "link.txt"), force=True)
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new\n"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(OutputError, match="nowhere does not exist"):
        check_output(str(tmp_path / "nowhere" / "report.txt"))


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(OutputError, match="it is a folder"):
        check_output(str(tmp_path), force=True)


def test_a_file_as_a_folder_is_refused(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(OutputError):
        check_output(str(tmp_path / "a" / "report.txt"))


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_impossible_names_are_refused(tmp_path, name):
    with pytest.raises(OutputError):
        write_output("new", str(tmp_path / name))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_closed_folder_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="no permission"):
        check_output(str(tmp_path / "report.txt"))


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(output.os, "fsync", full)
    with pytest.raises(OutputError, match="No space left") as caught:
        write_output("new", str(tmp_path / "report.txt"))
    assert "nothing was written" in caught.value.hint
    assert left_behind(tmp_path) == []


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    def interrupt(_handle: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "report.txt").write_text("old")
    monkeypatch.setattr(output.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_output("new", str(tmp_path / "report.txt"), force=True)
    assert left_behind(tmp_path) == ["report.txt"]
    assert (tmp_path / "report.txt").read_text() == "old"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_is_written_directly_and_its_errors_are_told():
    write_output("new", "/dev/null")
    with pytest.raises(OutputError, match="No space left"):
        write_output("new", "/dev/full")


def test_characters_that_utf8_lacks_are_escaped(tmp_path):
    write_output("a\udc80b", str(tmp_path / "report.txt"))
    assert (tmp_path / "report.txt").read_text() == "a\\udc80b\n"
