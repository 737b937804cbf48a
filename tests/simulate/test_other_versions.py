"""The device on another TensorFlow: `TFPLACE_OTHER_PYTHON=/path/to/python` names one with tensorflow 2.18, say."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from simulated_runs import HERE, environment

OTHER = os.environ.get("TFPLACE_OTHER_PYTHON")
pytestmark = pytest.mark.skipif(not OTHER, reason="TFPLACE_OTHER_PYTHON names no other TensorFlow")
CODE = "import tensorflow as tf; print(tf.__version__)"


def other(*arguments: str, **changes: str) -> str:
    done = subprocess.run(
        [str(OTHER), *arguments], env=environment(**changes), cwd=HERE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("name", ["v1_session", "tf_function", "keras_conv", "control_flow", "mirrored_default"])
def test_programs_run_as_on_the_cpu(name: str) -> None:
    simulated = json.loads(other("programs.py", name, SIMULATE="2,2GB").splitlines()[-1])
    plain = json.loads(other("programs.py", name, SIMULATE="", TF_ENABLE_ONEDNN_OPTS="0").splitlines()[-1])
    assert simulated["losses"] == pytest.approx(plain["losses"], abs=1e-5)


def test_each_version_has_a_library_of_its_own() -> None:
    code = "from tfplace.simulate.build import find_wheel, library_path; print(library_path(find_wheel()))"
    version = other("-c", CODE).split()[-1]
    assert version in other("-c", code).split()[-1]
