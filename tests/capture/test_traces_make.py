"""traces/make.py makes the same traces again: same ops on the same devices, same edges and copies between them."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tfplace.read.protos import RunMetadata

TRACES = Path(__file__).parents[2] / "traces"
COPY = re.compile(r"Memcpy(H2D|D2H|D2D|P2P) .*size:(\d+).*")
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="the simulated GPU needs Linux"),
    pytest.mark.skipif(shutil.which(os.environ.get("CXX") or "g++") is None, reason="the simulated GPU needs g++"),
]


def short(device: bytes | str) -> str:
    text = device.decode() if isinstance(device, bytes) else device
    return text.rpartition("device:")[2]


def outline(path: Path) -> tuple[Counter[Any], Counter[Any], Counter[Any]]:
    """Return counts of (device, op), of (producer, from, to), and of (direction, bytes) of each copy.

    Numbers in edge names differ between runs.
    """
    message = RunMetadata.FromString(path.read_bytes())
    graphs = [*message.partition_graphs, *(g for f in message.function_graphs for g in f.partition_graphs)]
    nodes = [node for graph in graphs for node in graph.node]
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
    lanes = [lane for lane in message.step_stats.dev_stats if lane.device.endswith("/memcpy")]
    copies = Counter(COPY.sub(r"\1 \2", row.timeline_label) for lane in lanes for row in lane.node_stats)
    return ops, edges, copies


@pytest.mark.parametrize(("name", "copies"), [("embedding_function_on_cpu", 5), ("two_towers_cpu_weights", 30)])
def test_remade_trace_has_the_same_ops_edges_and_copies(name: str, copies: int, tmp_path: Path) -> None:
    from tensorflow import __version__

    if not __version__.startswith("2.21."):
        pytest.skip(f"the traces are of TensorFlow 2.21, this is {__version__}")
    command = [sys.executable, str(TRACES / "make.py"), name, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    remade = outline(tmp_path / f"{name}.pb")
    assert remade == outline(TRACES / f"{name}.pb")
    assert sum(remade[2].values()) == copies


def test_a_trace_whose_copies_are_not_those_of_the_device_is_not_written(tmp_path: Path) -> None:
    program = (
        "import sys, traces.make as make\n"
        "make.copies_in = lambda metadata: {'H2D': [7, 2700327]}\n"
        f"make.make('inference_cpu_weights', make.Path({str(tmp_path)!r}))\n"
    )
    path = {"PYTHONPATH": str(TRACES.parent), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", program]
    env = os.environ | path
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=env)
    assert done.returncode == 1
    assert "but the device counted {'H2D': [7, 2700328], 'D2H': [1, 640]}" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_unknown_name_is_refused_with_exit_2(tmp_path: Path) -> None:
    command = [sys.executable, str(TRACES / "make.py"), "no_such_trace", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "no such trace: no_such_trace" in done.stderr
    assert list(tmp_path.iterdir()) == []
