"""What readers look up in the context of a file is what capture writes there: a rule on an invented key never fires."""

from __future__ import annotations

import dataclasses
import gzip
import re
from pathlib import Path
from typing import Any

import pytest

from tfplace.read import run_metadata
from tfplace.read.context import binary_context
from tfplace.read.load import load_trace
from tfplace.read.tables import normalize
from tfplace.report.build import build_report

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "traces").glob("*.pb"), *(ROOT / "traces").glob("*.pb.gz")])

OPTIONAL = {
    "accelerator": "only where the user named a CPU device as the accelerator",
    "notes[].slug": "only where something was missing or disturbed, which it was in none of these files",
    "notes[].text": "as above",
    "notes[].count": "as above",
    "devices[].memory_bytes": "not in files of early versions",
    "functions[].arguments[].bytes": "not in files of early versions",
}
"""{key that capture writes though these files need not have it: why}."""

OBJECTS = re.compile(r"|(un)?timed_steps\[\]|steps\[\]|functions\[\](\.arguments\[\])?|devices\[\]|notes\[\]|overhead")
"""Objects whose keys have fixed names; the keys of others are names of nodes, threads or ops."""


def stored(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return binary_context(gzip.decompress(data) if path.suffix == ".gz" else data)[0]


def keys_of(value: Any, path: str = "") -> set[str]:
    """Return 'steps[].num' and the like of all objects with fixed keys."""
    if isinstance(value, list):
        return {key for item in value for key in keys_of(item, f"{path}[]")}
    if not isinstance(value, dict) or not OBJECTS.fullmatch(path):
        return set()
    below = {f"{path}.{key}".lstrip("."): inner for key, inner in value.items()}
    return set(below) | {key for name, inner in below.items() for key in keys_of(inner, name)}


class Watched(dict[str, Any]):
    """An object of the context that remembers which of its keys are looked up."""

    def __init__(self, content: dict[str, Any], path: str, asked: set[str]) -> None:
        super().__init__({key: watch(value, f"{path}.{key}".lstrip("."), asked) for key, value in content.items()})
        self._note = lambda key: asked.add(f"{path}.{key}".lstrip("."))

    def get(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)


def watch(value: Any, path: str, asked: set[str]) -> Any:
    if isinstance(value, list):
        return [watch(item, f"{path}[]", asked) for item in value]
    return Watched(value, path, asked) if isinstance(value, dict) and OBJECTS.fullmatch(path) else value


@pytest.fixture(scope="module")
def written() -> set[str]:
    return {key for path in FILES for key in keys_of(stored(path))}


@pytest.mark.parametrize("whole", [False, True], ids=["as captured", "as if compiled by XLA"])
@pytest.mark.parametrize("name", ["cifar10_function_weights_on_cpu.pb", "two_towers_cpu_weights.pb", "keras_fit.pb"])
def test_a_report_looks_up_only_what_capture_writes(
    name: str, whole: bool, written: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[str] = set()
    merge = normalize._merge_contexts

    def read(data: bytes) -> Any:
        context, notes = binary_context(data)
        for function in context.get("functions", []) if whole else []:
            function.update(jit=True, graph=None)
        return Watched(context, "", asked), notes

    monkeypatch.setattr(run_metadata, "binary_context", read)
    monkeypatch.setattr(normalize, "_merge_contexts", lambda raws: Watched(merge(raws), "", asked))
    trace = load_trace([str(ROOT / "traces" / name)])
    for stand_in in (False, True):  # a real GPU, whose times count, and the simulated one
        build_report(trace if stand_in else _on_a_real_gpu(trace))
    assert {"tf_version", "steps", "functions", "overhead", "steps[].threads"} <= asked
    assert asked - written - set(OPTIONAL) == set()


def _on_a_real_gpu(trace: Any) -> Any:
    return dataclasses.replace(trace, simulated=None, has_device_times=True)


def test_no_line_of_the_readers_names_another_key(written: set[str]) -> None:
    """Also where the report of the files above does not pass by."""
    names = {key.rpartition(".")[2] for key in written | set(OPTIONAL)} | {"ops"}  # of `kernels`
    found = {
        (str(path.relative_to(ROOT)), match[1])
        for package in ("read", "analyze", "diagnose", "report")
        for path in (ROOT / "tfplace" / package).rglob("*.py")
        for match in re.finditer(r"\bcontext(?:\.get\(|\[)\"(\w+)\"", path.read_text(encoding="utf-8"))
    }
    assert len(found) > 10
    assert {one for one in found if one[1] not in names} == set()
