"""Shared fixtures."""

from __future__ import annotations

from pathlib import Path

import pytest

RECORDED = Path(__file__).parents[2] / "shared" / "traces"


@pytest.fixture(scope="session")
def recorded() -> Path:
    """Folder of traces that others recorded on real GPUs, beside the checkout; tests skip where it is not."""
    if not (RECORDED / "EXPECTED.json").is_file():
        pytest.skip("the folder of recorded traces is not beside this checkout")
    return RECORDED
