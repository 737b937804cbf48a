"""Starts the simulated GPU: in this process, or for an unedited script and its children.

`start` serves code that can be edited. `environment` gives the variables under which TensorFlow itself loads the
device when it is imported, which child processes inherit. Either must come before TensorFlow makes its devices.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfplace.errors import UsageError
from tfplace.simulate.build import find_wheel, library_path
from tfplace.simulate.errors import RealGpuError, SimulateError, TooLateError

PLUGIN_VARIABLE = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
GPUS_VARIABLE = "TFPLACE_SIM_GPUS"
MEMORY_VARIABLE = "TFPLACE_SIM_MEMORY"
FORCE_VARIABLE = "TFPLACE_SIM_FORCE"

# What every report on a simulated run must say about its copies.
EDGE_COPIES_ONLY = (
    "Copies that a GPU kernel makes inside itself, such as the counts that Where and Unique read back, "
    "are not simulated."
)

_STARTED, _SAME, _OTHER, _REAL_GPU, _WRONG_VERSION = range(5)
_DRIVER_NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvhost-ctrl", "/dev/kfd")
_MEMORY_UNITS = {"": 0, "B": 0, "KB": 10, "KIB": 10, "MB": 20, "MIB": 20, "GB": 30, "GIB": 30, "TB": 40, "TIB": 40}
_MAX_GPUS = 64
_MIN_MEMORY = 1 << 20


@dataclass(frozen=True)
class Simulation:
    """What is simulated in this process.

    Attributes:
        gpus: Number of simulated GPUs.
        memory_bytes: Memory of each.
    """

    gpus: int
    memory_bytes: int


def parse_memory(text: str | int) -> int:
    """The bytes of a memory size such as `16GB`, `512MB` or `17179869184`.

    Units are powers of 1024, as GPU memory is sold: a 16GB card has 16 x 1024^3 bytes.

    Args:
        text: The size.

    Returns:
        Bytes.

    Raises:
        UsageError: It is no size, or less than 1MB.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(text))
    unit = _MEMORY_UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None:
        raise UsageError(f"{text!r} is not a memory size.", "Write it as 16GB or 512MB.")
    number = int(float(found[1]) * (1 << unit))
    if not _MIN_MEMORY <= number < 1 << 50:
        raise UsageError(f"{text!r} is no memory size for a GPU.", "Give at least 1MB, for example 16GB.")
    return number


def start(gpus: int = 1, memory: str | int = "16GB", *, force: bool = False) -> Simulation:
    """Puts simulated GPUs into this process. Call it before anything makes TensorFlow's devices.

    Calling it again with the same arguments does nothing.

    Args:
        gpus: How many.
        memory: Memory of each, see `parse_memory`.
        force: Simulate although a real GPU is visible; the real ones are then out of reach in this process.

    Returns:
        What is simulated.

    Raises:
        UsageError: The arguments make no sense.
        TooLateError: TensorFlow has made its devices, or other GPUs are simulated in this process.
        RealGpuError: A real GPU is visible and `force` is off.
        SimulateError: As `tfplace.simulate.build.library_path`.
    """
    wanted = Simulation(_check_gpus(gpus), parse_memory(memory))
    library = _load(library_path(find_wheel()))
    running = _running(library)
    if running == wanted:
        return wanted
    if running is not None:
        raise TooLateError(
            f"This process already simulates {_describe(running)}, so it cannot simulate {_describe(wanted)}.",
            "Use one start() in a process.",
        )
    context = _context_before_devices()
    code = library.tfplace_sim_start(wanted.gpus, ctypes.c_int64(wanted.memory_bytes), int(force))
    if code == _REAL_GPU:
        raise _real_gpu_error()
    if code not in (_STARTED, _SAME):
        raise SimulateError(f"The simulated GPU did not start (code {code}).", "Empty tfplace's cache folder.")
    if context is not None:  # It listed the physical devices before, for a call such as list_physical_devices().
        context.reinitialize_physical_devices()
    return wanted


def environment(
    gpus: int = 1, memory: str | int = "16GB", *, force: bool = False, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables under which any Python that imports this TensorFlow gets simulated GPUs.

    Builds the device if need be. TensorFlow must not have been imported yet in the process that uses them.

    Args:
        gpus: How many.
        memory: Memory of each, see `parse_memory`.
        force: Simulate although a real GPU is visible.
        base: The environment that they will be added to, `os.environ` when absent.

    Returns:
        Only the variables to add.

    Raises:
        TooLateError: Another device plug-in is asked for by `TF_PLUGGABLE_DEVICE_LIBRARY_PATH`.
        UsageError, RealGpuError, SimulateError: As `start`.
    """
    base = os.environ if base is None else base
    wanted = Simulation(_check_gpus(gpus), parse_memory(memory))
    path = str(library_path(find_wheel()))
    other = base.get(PLUGIN_VARIABLE, "")
    if other not in ("", path):
        raise TooLateError(
            f"{PLUGIN_VARIABLE} already names another device: {other}.", "Unset it for the simulated run."
        )
    if not force and _sees_real_gpu(base):
        raise _real_gpu_error()
    variables = {PLUGIN_VARIABLE: path, GPUS_VARIABLE: str(wanted.gpus), MEMORY_VARIABLE: str(wanted.memory_bytes)}
    if force:
        variables[FORCE_VARIABLE] = "1"
    return variables


def activate(gpus: int = 1, memory: str | int = "16GB", *, force: bool = False) -> Simulation:
    """Sets this process's environment so that its next `import tensorflow`, and its children, get simulated GPUs.

    Args:
        gpus: How many.
        memory: Memory of each, see `parse_memory`.
        force: Simulate although a real GPU is visible.

    Returns:
        What will be simulated.

    Raises:
        TooLateError: TensorFlow is imported already; use `start`.
        UsageError, RealGpuError, SimulateError: As `environment`.
    """
    if "tensorflow" in sys.modules:
        raise TooLateError("TensorFlow is imported already.", "Call activate() before, or start() now.")
    os.environ.update(environment(gpus, memory, force=force))
    return Simulation(gpus, parse_memory(memory))


def running() -> Simulation | None:
    """What is simulated in this process; None where nothing is, or TensorFlow is not imported."""
    library = loaded_library()
    return None if library is None else _running(library)


def loaded_library() -> ctypes.CDLL | None:
    """The device's library if this process has it, without building or loading anything else."""
    if "tensorflow" not in sys.modules:
        return None
    with contextlib.suppress(OSError, StopIteration):
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            line = next(line for line in maps if "libtfplace_simulated_gpu.so" in line)
        return _bind(ctypes.CDLL(line[line.index("/") :].rstrip("\n")))
    return None


def _check_gpus(gpus: int) -> int:
    if isinstance(gpus, bool) or not isinstance(gpus, int) or not 1 <= gpus <= _MAX_GPUS:
        raise UsageError(f"{gpus!r} is not a number of GPUs.", f"Give 1 to {_MAX_GPUS}.")
    return gpus


def _describe(simulation: Simulation) -> str:
    plural = "" if simulation.gpus == 1 else "s"
    return f"{simulation.gpus} GPU{plural} of {simulation.memory_bytes / (1 << 30):.3g}GB"


def _load(path: Path) -> ctypes.CDLL:
    importlib.import_module("tensorflow")  # Its libraries must be there first.
    return _bind(ctypes.CDLL(str(path)))


def _bind(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer = ctypes.POINTER(ctypes.c_int64)
    library.tfplace_sim_start.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int]
    library.tfplace_sim_config.argtypes = [pointer]
    library.tfplace_sim_copies.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int, pointer, pointer]
    library.tfplace_sim_copies.restype = None
    library.tfplace_sim_uncovered.restype = ctypes.c_char_p
    return library


def _running(library: ctypes.CDLL) -> Simulation | None:
    memory = ctypes.c_int64()
    gpus = library.tfplace_sim_config(ctypes.byref(memory))
    return Simulation(gpus, memory.value) if gpus else None


def _context_before_devices() -> Any:
    """TensorFlow's eager context where it exists without devices, None where it does not exist yet."""
    context = importlib.import_module("tensorflow.python.eager.context")._context
    session_type = importlib.import_module("tensorflow.python.client.session").BaseSession
    made_by = ""
    if context is not None and context._initialized:
        made_by = "an eager op or a tf.function ran"
    elif any(issubclass(type(candidate), session_type) for candidate in gc.get_objects()):
        made_by = "a tf.compat.v1.Session was opened"
    if made_by:
        raise TooLateError(
            f"TensorFlow has made its devices already ({made_by}), and they cannot be changed.",
            "Call tfplace.simulate.start() right after importing tensorflow.",
        )
    return context


def _sees_real_gpu(base: Mapping[str, str]) -> bool:
    """Asks a child, and only on a machine with a driver: the question takes an import of TensorFlow."""
    if base.get("CUDA_VISIBLE_DEVICES") in ("", "-1") or not any(map(os.path.exists, _DRIVER_NODES)):
        return False
    environ = {key: value for key, value in base.items() if key != PLUGIN_VARIABLE}
    environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    program = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)
    return done.stdout.strip() not in ("", "0")


def _real_gpu_error() -> RealGpuError:
    return RealGpuError(
        "A real GPU is visible here, so simulating one would hide it.",
        "Hide it with CUDA_VISIBLE_DEVICES=-1, or insist with force=True.",
    )
