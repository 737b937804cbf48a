from __future__ import annotations

import gzip
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import tfplace

HERE = Path(__file__).parent
ROOT = Path(tfplace.__file__).parent.parent
PROGRAMS = HERE / "programs"

if importlib.util.find_spec("tensorflow") is None:
    collect_ignore_glob = ["test_tf_*.py"]


@dataclass
class Ran:
    """How a program ended, and the trace that it left."""

    code: int
    out: str
    err: str
    folder: Path
    trace: Trace | None = None

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.err.splitlines() if "tfplace:" in line]


@dataclass
class Trace:
    """A written file, read by TensorFlow's own parsers."""

    message: Any
    context: dict[str, Any]
    text: str = ""
    path: Path = field(default_factory=Path)

    def notes(self) -> set[str]:
        return {note["slug"] for note in self.context["notes"]}

    def arguments(self, kind: str = "variable") -> list[dict[str, Any]]:
        return [one for function in self.context["functions"] for one in function["arguments"] if one["kind"] == kind]

    def all_steps(self) -> list[dict[str, Any]]:
        return sorted([*self.context["untimed_steps"], *self.context["steps"]], key=lambda step: step["num"])

    def graphs(self) -> dict[str, list[Any]]:
        graphs = {f"function:{i}": list(one.partition_graphs) for i, one in enumerate(self.message.function_graphs)}
        graphs |= {f"partition:{i}": [one] for i, one in enumerate(self.message.partition_graphs)}
        return graphs

    def line_of(self, graph: str, node: str) -> str | None:
        lines = self.context["nodes"].get(graph, {"lines": [], "of": {}})
        number = lines["of"].get(node)
        return None if number is None else lines["lines"][number]


def read_trace(path: Path) -> Trace:
    """Read a trace with TensorFlow's parsers only."""
    from google.protobuf import text_format
    from google.protobuf.unknown_fields import UnknownFieldSet
    from tensorflow.core.protobuf import config_pb2

    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    message = config_pb2.RunMetadata()
    context: dict[str, Any] = {}
    text = ""
    if ".pbtxt" in path.name:
        text = data.decode()
        text_format.Parse(text, message)
        for line in text.splitlines():
            if not line.startswith("# tfplace: "):
                break
            context.update(json.loads(line.removeprefix("# tfplace: ")))
    else:
        message.ParseFromString(data)
        fields = [one for one in UnknownFieldSet(message) if one.field_number == 20100]
        assert len(fields) == 1
        context = json.loads(fields[0].data)
    return Trace(message, context, text, path)


class Zygote:
    """See zygote.py."""

    def __init__(self, folder: Path, gpus: int = 0) -> None:
        self._folder = folder
        self._count = 0
        env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(ROOT)}
        gpus = gpus or int(os.environ.get("TFPLACE_TEST_GPUS", "0"))  # set it to run everything on simulated GPUs
        if gpus:
            from tfplace import simulate

            env |= simulate.environment(gpus=gpus)
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "zygote.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=env,
        )

    def run(
        self,
        program: str,
        *args: str,
        env: dict[str, str] | None = None,
        trace: str | None = "trace.pb",
        strict: bool = True,
        timeout: float = 180,
    ) -> Ran:
        """Run a program of `programs` in a folder of its own; TFPLACE_STRICT makes own faults fatal."""
        self._count += 1
        folder = self._folder / f"{self._count}"
        folder.mkdir()
        request = {
            "program": str(PROGRAMS / program),
            "args": list(args),
            "env": {"TFPLACE_STRICT": "1" if strict else "0", **(env or {})},
            "cwd": str(folder),
            "out": str(folder / "out.txt"),
            "err": str(folder / "err.txt"),
            "timeout": timeout,
        }
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        out, err = (folder / "out.txt").read_text(), (folder / "err.txt").read_text()
        ran = Ran(answer["code"], out, err, folder)
        if trace is not None and (folder / trace).exists():
            ran.trace = read_trace(folder / trace)
        return ran

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(30)


@pytest.fixture(scope="session")
def zygote(tmp_path_factory):
    runner = Zygote(tmp_path_factory.mktemp("programs"))
    yield runner
    runner.close()


@pytest.fixture
def run(zygote):
    return zygote.run
