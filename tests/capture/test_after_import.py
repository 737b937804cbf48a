"""Doing something after a module's import, without importing it."""

from __future__ import annotations

import sys

import pytest

from tfplace.capture import after_import


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "watched_module.py").write_text("value = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "watched_module"
    sys.modules.pop("watched_module", None)


def test_action_comes_after_the_import_and_once(module):
    seen = []
    after_import.after_import(module, lambda: seen.append(sys.modules[module].value))
    assert seen == []
    __import__(module)
    assert seen == [3]
    del sys.modules[module]
    __import__(module)
    assert seen == [3]


def test_two_actions_are_both_done(module):
    seen = []
    after_import.after_import(module, lambda: seen.append(1))
    after_import.after_import(module, lambda: seen.append(2))
    __import__(module)
    assert sorted(seen) == [1, 2]


def test_imported_module_is_acted_on_now():
    seen = []
    after_import.after_import("sys", lambda: seen.append(1))
    assert seen == [1]


def test_forgotten_action_is_not_done(module):
    seen = []

    def action():
        seen.append(1)

    after_import.after_import(module, action)
    after_import.forget(module, action)
    __import__(module)
    assert seen == []
    assert not [one for one in sys.meta_path if type(one).__name__ == "_Finder"]


def test_missing_module_is_still_missing():
    after_import.after_import("no_such_module_at_all", lambda: None)
    with pytest.raises(ModuleNotFoundError):
        __import__("no_such_module_at_all")
