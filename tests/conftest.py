"""Shared fixtures."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest

# A shell starts background jobs with Ctrl-C ignored, and children inherit that: the tests of Ctrl-C need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)

RECORDED = Path(__file__).parents[2] / "shared" / "traces"


@pytest.fixture(scope="session")
def recorded() -> Path:
    """Folder of traces that others recorded on real GPUs, beside the checkout; tests skip where it is not."""
    if not (RECORDED / "EXPECTED.json").is_file():
        pytest.skip("the folder of recorded traces is not beside this checkout")
    return RECORDED
