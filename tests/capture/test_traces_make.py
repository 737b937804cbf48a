"""traces/make.py makes the same traces again: same ops on the same devices, same edges over the border."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tfplace.read.protos import RunMetadata

TRACES = Path(__file__).parents[2] / "traces"
pytestmark = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")


def short(device: bytes | str) -> str:
    text = device.decode() if isinstance(device, bytes) else device
    return text.rpartition("device:")[2]


def outline(path: Path) -> tuple[Counter[Any], Counter[Any]]:
    """Return counts of (device, op) and of (producer, from, to); numbers in edge names differ between runs."""
    message = RunMetadata.FromString(path.read_bytes())
    nodes = [node for graph in message.partition_graphs for node in graph.node]
    ops = Counter((short(node.device), node.op) for node in nodes)
    edges = Counter(
        (
            node.attr["tensor_name"].s.split(b"_", 2)[2],
            short(node.attr["send_device"].s),
            short(node.attr["recv_device"].s),
        )
        for node in nodes
        if node.op == "_Send"
    )
    return ops, edges


@pytest.mark.parametrize("name", ["embedding_function_on_cpu", "two_towers_cpu_weights"])
def test_remade_trace_has_the_same_ops_and_edges(name: str, tmp_path: Path) -> None:
    from tensorflow import __version__

    if not __version__.startswith("2.21."):
        pytest.skip(f"the traces are of TensorFlow 2.21, this is {__version__}")
    command = [sys.executable, str(TRACES / "make.py"), name, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    remade = outline(tmp_path / f"{name}.pb")
    assert remade == outline(TRACES / f"{name}.pb")
    assert sum(remade[1].values()) > 5


def test_unknown_name_is_refused_with_exit_2(tmp_path: Path) -> None:
    command = [sys.executable, str(TRACES / "make.py"), "no_such_trace", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "no such trace: no_such_trace" in done.stderr
    assert list(tmp_path.iterdir()) == []
