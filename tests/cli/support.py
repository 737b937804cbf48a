"""Running tfplace as people do: a process, its output, its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.builders import CPU0, GPU0, copy, gpu_lanes, graph, kernel, lane, node, op, recv, run_metadata, send

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "traces"

Done = subprocess.CompletedProcess


def tfplace(*arguments: str | Path, stdin: bytes | None = None, **environment: str) -> Done[str]:
    """Run `python -m tfplace` from the repository root; output as text, undecodable bytes escaped."""
    done = tfplace_bytes(*arguments, stdin=stdin, **environment)
    return Done(
        done.args,
        done.returncode,
        done.stdout.decode("utf-8", "backslashreplace"),
        done.stderr.decode("utf-8", "backslashreplace"),
    )


def tfplace_bytes(*arguments: str | Path, stdin: bytes | None = None, **environment: str) -> Done[bytes]:
    command = [sys.executable, "-m", "tfplace", *map(str, arguments)]
    variables = {**os.environ, "TFPLACE_DEBUG": "0", "PYTHONIOENCODING": "utf-8", **environment}
    return subprocess.run(command, input=stdin, capture_output=True, cwd=ROOT, env=variables, timeout=120, check=False)


def one_line_error(done: Done[str]) -> str:
    """Return the error of a refused command: one line on stderr, nothing on stdout, exit code 2."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("tfplace: error: ")
    assert "Traceback" not in done.stderr
    return lines[0]


def step(name: str = "w", scale: int = 1) -> Any:
    """One training step: 24 bytes of a weight go up to the GPU, 24 bytes of gradient come back."""
    size = 24 * scale
    shape = f"[{2 * scale},3]"
    up, down = f"edge_1_{name}/read", "edge_2_grad"
    attrs = {"T": "float32", "_output_shapes": [shape]}
    host = graph(
        CPU0,
        node(name, "VariableV2", dtype="float32", shape=shape),
        node(f"{name}/read", "Identity", name, **attrs),
        send(up, f"{name}/read", CPU0, GPU0),
        recv("grad/_3", down, GPU0, CPU0),
        node("lr", "Const", dtype="float32", value={"dtype": "float32", "shape": "[]", "content": b"\0\0\0\0"}),
        node("update", "ApplyGradientDescent", name, "lr", "grad/_3", T="float32"),
    )
    gpu = graph(
        GPU0,
        recv(f"{name}/read/_1", up, CPU0, GPU0),
        node("relu", "Relu", f"{name}/read/_1", **attrs),
        node("grad", "ReluGrad", "relu", f"{name}/read/_1", **attrs),
        send(down, "grad", GPU0, CPU0),
    )
    lanes = [
        lane(
            CPU0,
            op(name, "VariableV2", start=0, duration=1),
            op("update", "ApplyGradientDescent", start=90, duration=10),
        ),
        lane(GPU0, op("relu", "Relu", start=10, duration=2), op("grad", "ReluGrad", start=13, duration=2)),
        *gpu_lanes(
            0,
            kernels=[
                kernel("relu", "Relu", start=30, duration=20),
                kernel("grad", "ReluGrad", start=50, duration=20),
            ],
            copies=[
                copy(up, "HtoD", size, start=20, duration=4, memory="Pageable to Device"),
                copy(down, "DtoH", size, start=75, duration=6, memory="Device to Pinned"),
            ],
        ),
    ]
    return run_metadata([host, gpu], lanes)


def write_step(path: Path, name: str = "w", scale: int = 1) -> Path:
    """Write `step()`, as text where the path ends in .pbtxt, else as binary."""
    message = step(name, scale)
    path.write_bytes(str(message).encode() if path.suffix == ".pbtxt" else message.SerializeToString())
    return path
