"""The golden-file helper itself: it notices, shows and keeps differences, and updates only when told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import UPDATE, compare


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.delenv(UPDATE, raising=False)
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "a.txt").write_text("one\ntwo\n")
    return {"golden": tmp_path / "golden", "actual": tmp_path / "actual"}


def test_equal_text_passes_and_clears_an_old_difference(folders):
    folders["actual"].mkdir()
    (folders["actual"] / "a.txt").write_text("old")
    compare("a.txt", "one\ntwo\n", **folders)
    assert not (folders["actual"] / "a.txt").exists()


def test_a_difference_is_shown_and_kept(folders):
    with pytest.raises(pytest.fail.Exception, match=r"-two\n\+three"):
        compare("a.txt", "one\nthree\n", **folders)
    assert (folders["actual"] / "a.txt").read_text() == "one\nthree\n"
    assert (folders["golden"] / "a.txt").read_text() == "one\ntwo\n"


def test_a_missing_golden_file_fails(folders):
    with pytest.raises(pytest.fail.Exception, match="no golden file"):
        compare("b.txt", "new\n", **folders)
    assert (folders["actual"] / "b.txt").read_text() == "new\n"


def test_updating_writes_the_golden_file(folders, monkeypatch):
    monkeypatch.setenv(UPDATE, "1")
    compare("deep/b.txt", "new\n", **folders)
    monkeypatch.delenv(UPDATE)
    compare("deep/b.txt", "new\n", **folders)
