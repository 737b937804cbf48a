"""The guard, the clock and the paths, without TensorFlow."""

from __future__ import annotations

import sys
import threading
import time
import warnings

import pytest

from tfplace.capture import clock, guard, sources


def fail(error):
    raise error


@pytest.fixture
def contained(monkeypatch):
    monkeypatch.setenv("TFPLACE_STRICT", "0")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield seen


def test_exception_is_held_back_and_the_default_given(contained):
    one = guard.Guard()
    assert one.run("site", fail, OSError("no"), default=5) == 5
    assert one.faults == {"site": 1}
    assert one.messages == ["site: OSError: no"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_what_is_no_exception_goes_on(contained, error):
    with pytest.raises(type(error)):
        guard.Guard().run("site", fail, error)
    assert not contained


def test_one_warning_per_site_and_one_when_it_switches_off(contained):
    one, ended = guard.Guard(), []
    one.when_exhausted(lambda: ended.append(True))
    for site in ("a", "a", "b", "b"):
        one.run(site, fail, RuntimeError("x"))
    assert [str(warning.message).partition("'")[2][:1] for warning in contained[:2]] == ["a", "b"]
    assert "switched itself off" in str(contained[2].message)
    assert len(contained) == 3
    assert ended == [True]
    assert one.exhausted


def test_own_faults_are_fatal_in_tests(monkeypatch):
    monkeypatch.setenv("TFPLACE_STRICT", "1")
    with pytest.raises(ZeroDivisionError):
        guard.Guard().run("site", fail, ZeroDivisionError())


def test_warning_names_the_users_line(contained):
    guard.warn("text")
    assert contained[0].filename == __file__


def test_warnings_as_errors_only_print(monkeypatch, capsys):
    monkeypatch.setenv("TFPLACE_STRICT", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guard.warn("text")
    assert "tfplace: text" in capsys.readouterr().err


def test_step_has_wall_and_cpu_time_of_threads():
    step = clock.Step(4, timed=True)
    step.begin()
    worker = threading.Thread(target=lambda: sum(range(2_000_000)), name="worker")
    worker.start()
    sum(range(2_000_000))
    time.sleep(0.02)
    step.end()
    worker.join()
    row = step.as_dict()
    assert row["num"] == 4
    assert row["wall_ns"] == row["end_ns"] - row["start_ns"] >= 20_000_000
    assert 0 < row["cpu_time_ns"] < row["wall_ns"] * 4
    if sys.platform.startswith("linux"):
        assert row["threads"]["python:MainThread"] > 0


def test_libraries_and_generated_code_are_not_the_users():
    assert sources.is_library(threading.__file__)
    assert sources.is_library("<string>")
    assert sources.is_library(guard.__file__)
    assert not sources.is_library(__file__)
    assert not sources.is_library("/home/me/venv/lib/python3.11/site-packages/mymodels/train.py")


def test_paths_below_the_current_folder_are_relative(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    sources.short_path.cache_clear()
    assert sources.short_path(str(tmp_path / "code" / "train.py")) == "code/train.py"
    assert sources.short_path("/elsewhere/train.py") == "/elsewhere/train.py"
