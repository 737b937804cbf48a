"""Starts Python processes that use TensorFlow, with and without simulated GPUs."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def environment(**changes):
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("TFPLACE_SIM", "SIMULATE"))}
    environ.pop("TF_PLUGGABLE_DEVICE_LIBRARY_PATH", None)
    path = os.pathsep.join(filter(None, [str(ROOT), environ.get("PYTHONPATH")]))
    return {**environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", **changes}


def begin(*arguments, **changes):
    """Starts Python with these arguments; changes go to the environment."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**changes),
        cwd=HERE,
    )


def finish(process, timeout=600):
    """The standard output and error of a process that must succeed."""
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert process.returncode == 0, f"exit code {process.returncode}\n{out[-2000:]}\n{err[-6000:]}"
    return out, err


def python(code, *arguments, **changes):
    return finish(begin("-c", code, *arguments, **changes))[0]


@functools.cache
def program(name, simulate=""):
    """What a program of programs.py returned. `simulate` is "GPUS,MEMORY", or empty for the CPU."""
    out, _ = finish(begin("programs.py", name, SIMULATE=simulate))
    return json.loads(out.splitlines()[-1])


@functools.cache
def both(name, simulate="1,2GB"):
    """A program on simulated GPUs and on the CPU, at the same time.

    The CPU runs without oneDNN, whose kernels round otherwise in 16 bits; a GPU partition never has them.
    """
    processes = [
        begin("programs.py", name, SIMULATE=simulate),
        begin("programs.py", name, SIMULATE="", TF_ENABLE_ONEDNN_OPTS="0"),
    ]
    return [json.loads(finish(process)[0].splitlines()[-1]) for process in processes]
