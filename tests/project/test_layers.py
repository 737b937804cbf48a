"""Imports go down only, and reading and reporting never import tensorflow."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "tfplace"
# From the top down: a layer may import itself and what stands below it.
LAYERS = ["cli", "report", "diagnose", "analyze", "read", "model", "errors units names version"]
FLOOR = {"errors", "units", "names", "version"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def layer_of(module: str) -> int | None:
    part = module.split(".")[1] if "." in module else ""
    for level, names in enumerate(LAYERS):
        if part in names.split():
            return level
    return None


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


@pytest.mark.parametrize("path", MODULES, ids=[module_name(p) for p in MODULES])
def test_imports_go_down_only(path: Path) -> None:
    own = layer_of(module_name(path))
    if own is None:
        return
    for target in imports_of(path):
        if target.startswith("tfplace."):
            level = layer_of(target)
            assert level is None or level >= own, f"{module_name(path)} imports {target}, which stands above it"


@pytest.mark.parametrize("path", MODULES, ids=[module_name(p) for p in MODULES])
def test_modules_stay_under_400_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 400


@pytest.mark.parametrize("package", ["capture", "simulate"])
def test_what_runs_in_the_users_process_stands_alone(package: str) -> None:
    for path in (PACKAGE / package).glob("*.py"):
        for target in imports_of(path):
            if target.startswith("tfplace"):
                own = target.split(".")[1:2] and target.split(".")[1] in (package, "errors", "version")
                assert own, f"{path.name} imports {target}"
            else:
                top = target.split(".")[0]
                assert top in sys.stdlib_module_names or top in ("tensorflow", "google", "numpy"), f"{path.name}: {top}"


def test_floor_imports_the_standard_library_only() -> None:
    for name in FLOOR:
        for target in imports_of(PACKAGE / f"{name}.py"):
            top = target.split(".")[0]
            assert top in sys.stdlib_module_names or target.split(".")[:2] in (["tfplace", f] for f in FLOOR), target


def test_reporting_never_imports_tensorflow() -> None:
    code = (
        "import sys; from tfplace.cli import main\n"
        "try: main(['report', 'traces/cifar10_weights_on_cpu.pbtxt'])\n"
        "except SystemExit: pass\n"
        "assert 'tfplace.analyze' in sys.modules\n"
        "sys.exit('tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
