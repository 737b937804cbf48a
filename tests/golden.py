"""Golden files: expected output kept in the repository, read by eye before it is kept.

    compare("report/cifar10.txt", text)

A mismatch prints a diff and saves what came out under tests/actual/ (not in git). To accept new output, look at the
diff, then run the test again with TFPLACE_UPDATE_GOLDEN=1.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"
ACTUAL = TESTS / "actual"
UPDATE = "TFPLACE_UPDATE_GOLDEN"


def compare(name: str, text: str, golden: Path = GOLDEN, actual: Path = ACTUAL) -> None:
    """Fail unless `text` equals the golden file `name`; with TFPLACE_UPDATE_GOLDEN=1 write it instead."""
    expected = golden / name
    if os.environ.get(UPDATE, "") not in ("", "0"):
        expected.parent.mkdir(parents=True, exist_ok=True)
        expected.write_text(text, encoding="utf-8")
        return
    kept = expected.read_text(encoding="utf-8") if expected.exists() else None
    if kept == text:
        (actual / name).unlink(missing_ok=True)
        return
    came_out = actual / name
    came_out.parent.mkdir(parents=True, exist_ok=True)
    came_out.write_text(text, encoding="utf-8")
    if kept is None:
        pytest.fail(f"no golden file {expected}; what came out is in {came_out}. Read it, then set {UPDATE}=1.")
    diff = "\n".join(difflib.unified_diff(kept.splitlines(), text.splitlines(), "golden", "actual", lineterm=""))
    pytest.fail(f"{name} differs from its golden file; what came out is in {came_out}.\n{diff}")
