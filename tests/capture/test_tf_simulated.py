"""On simulated GPUs, from capture to report: the weights on the CPU are named, and the fixed twin is clear."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest
from conftest import ROOT, Zygote

import tfplace

for needed in ("tfplace.simulate", "tfplace.cli"):
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not there", allow_module_level=True)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    from tfplace.simulate import SimulateError

    try:
        runner = Zygote(tmp_path_factory.mktemp("simulated"), gpus=2)
    except SimulateError as error:
        pytest.skip(f"no simulated GPU here: {error}")
    yield runner
    runner.close()


def report_of(ran):
    assert ran.code == 0, ran.err
    assert ran.trace is not None, ran.err
    command = [sys.executable, "-m", "tfplace", "report", "--format", "json", str(ran.trace.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("command", [("cifar.py", "above"), ("cifar_v1.py", "hook")], ids=" ".join)
def test_memory_of_the_simulated_gpus_is_the_configured_one(simulated, command):
    ran = simulated.run(*command)
    assert ran.code == 0, ran.err
    devices = tfplace.load(ran.trace.path).devices
    memory = dict(zip(devices["name"], devices["memory_bytes"], strict=True))
    assert memory["GPU:0"] == 16 << 30  # simulate's default
    assert devices[devices["kind"] == "CPU"]["memory_bytes"].isna().all()


CIFAR = {"conv1/weights": 5 * 5 * 3 * 16 * 4, "fc1/weights": 576 * 10 * 4}
KERAS = {"net/first/kernel": 16 * 32 * 4}
CASES = [
    (("cifar.py", "above"), CIFAR),
    (("cifar.py", "tape"), CIFAR),
    (("cifar_v1.py", "hook"), CIFAR),
    (("cifar_v1.py", "session"), CIFAR),
    (("keras_fit.py", "callback", "fit"), KERAS),
    (("mirrored.py", "above", "shared"), {"shared/projection": 64 * 64 * 4}),
    (("recorded.py", "cifar.py", "none"), CIFAR),
    (("recorded.py", "cifar.py", "tape-none"), CIFAR),
    (("recorded.py", "cifar_v1.py", "none"), CIFAR),
    (("recorded.py", "cifar_v1.py", "plain-none"), CIFAR),
    (("recorded.py", "keras_fit.py", "none", "fit"), KERAS),
    (("recorded.py", "mirrored.py", "none", "shared"), {"shared/projection": 64 * 64 * 4}),
]


@pytest.mark.parametrize(("command", "weights"), CASES, ids=" ".join)
def test_report_names_the_cpu_weights_with_line_and_bytes_copied_each_step(simulated, command, weights):
    report = report_of(simulated.run(*command))
    assert report["trace"]["simulated"]
    rows = {row["name"].removeprefix("/"): row for row in report["variables"]}
    for name, size in weights.items():
        row = next(row for key, row in rows.items() if key == name or name.endswith(f"/{key}"))
        assert row["bytes"] == size
        assert row["copied_each_step"]
        assert row["verdict"] == "unnecessary"
        assert ".py:" in row["source"]


@pytest.mark.parametrize(
    "command",
    [
        ("cifar.py", "above", "fixed"),
        ("cifar.py", "tape", "fixed"),
        ("cifar_v1.py", "hook", "fixed"),
        ("cifar_v1.py", "session", "fixed"),
        ("keras_fit.py", "callback", "fit", "fixed"),
        ("mirrored.py", "above"),
        ("recorded.py", "cifar.py", "none", "fixed"),
        ("recorded.py", "cifar_v1.py", "none", "fixed"),
    ],
    ids=" ".join,
)
def test_fixed_twin_is_clear(simulated, command):
    report = report_of(simulated.run(*command))
    assert report["variables"]
    assert not [row["name"] for row in report["variables"] if row["verdict"] == "unnecessary"]
    assert "variable-on-cpu" not in {finding["rule"] for finding in report["findings"]}
