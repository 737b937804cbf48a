"""Skips the folder where TensorFlow, a compiler or Linux is missing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def pytest_collection_modifyitems(items):
    reason = ""
    if sys.platform != "linux":
        reason = "the simulated GPU needs Linux"
    elif importlib.util.find_spec("tensorflow") is None:
        reason = "needs TensorFlow"
    elif shutil.which(os.environ.get("CXX") or "g++") is None:
        reason = "needs g++"
    for item in items:
        if reason and HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def recorded_traces():
    """Folder of RunMetadata files recorded on real GPUs, beside the checkout."""
    folder = ROOT.parent / "shared" / "traces"
    if not folder.is_dir():
        pytest.skip("no ../shared/traces beside the checkout")
    return folder
