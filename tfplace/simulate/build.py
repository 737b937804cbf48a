"""Builds the simulated device on first use, and finds it again.

One library serves one TensorFlow build, so it is compiled on the user's machine against the installed wheel
(about 15 s) and kept under the user's cache folder. The name of its folder holds the TensorFlow version, a hash of
the source and of the wheel, and the compiler's version; the file ends with a checksum over all of it. A library
that is not exactly the one wanted is built again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfplace.simulate.errors import (
    BuildFailedError,
    NoCompilerError,
    UnsupportedPlatformError,
    UnsupportedTensorFlowError,
)

SOURCE = Path(__file__).with_name("device.cc")
OLDEST_TENSORFLOW = (2, 18)
_LIBRARY = "libtfplace_simulated_gpu.so"
_TRAILER = b"tfplace-checksum:"
_DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly", "tf-nightly-cpu")
# Asked of a child process, so that this one stays free to choose its devices.
_FLAGS_PROGRAM = (
    "import json, tensorflow as tf;"
    "print(json.dumps([tf.__version__, tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags()]))"
)


@dataclass(frozen=True)
class Wheel:
    """The TensorFlow that this interpreter would import.

    Attributes:
        version: For example `2.21.0`.
        root: Folder of the package.
    """

    version: str
    root: Path


def find_wheel() -> Wheel:
    """The installed TensorFlow, found without importing it.

    Returns:
        Its version and place.

    Raises:
        UnsupportedPlatformError: Not on Linux.
        UnsupportedTensorFlowError: There is none, it is older than 2.18, or it was built without CUDA.
    """
    if sys.platform != "linux":
        raise UnsupportedPlatformError(
            f"The simulated GPU runs on Linux only, and this is {sys.platform}.",
            "Use WSL, a container or a CI machine with Linux; reports of existing traces work everywhere.",
        )
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        raise UnsupportedTensorFlowError("TensorFlow is not installed.", "pip install tensorflow")
    root = Path(next(iter(spec.submodule_search_locations)))
    version = _version()
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_TENSORFLOW:
        oldest = ".".join(map(str, OLDEST_TENSORFLOW))
        raise UnsupportedTensorFlowError(
            f"TensorFlow {version} is too old for the simulated GPU.", f"It needs {oldest} or newer."
        )
    if not _is_cuda_build(root):
        raise UnsupportedTensorFlowError(
            f"This TensorFlow {version} was built without CUDA, so it does not know which ops have a GPU kernel.",
            "Install the wheel named tensorflow (Linux x86-64) in place of tensorflow-cpu; no GPU is needed.",
        )
    return Wheel(version, root)


def library_path(wheel: Wheel | None = None) -> Path:
    """The simulated device as a shared library, built if it is not in the cache.

    Safe to call from any number of processes at once: one builds, the others wait. An interrupted build leaves
    nothing that a later one could mistake for a library.

    Args:
        wheel: From `find_wheel`; looked up when absent.

    Returns:
        The library's path.

    Raises:
        NoCompilerError: g++ is needed and not there.
        BuildFailedError: g++ failed, or the cache folder cannot be written.
        UnsupportedPlatformError, UnsupportedTensorFlowError: As `find_wheel`.
    """
    wheel = wheel or find_wheel()
    stem = f"tf{wheel.version}-{_source_key(wheel)}"
    compiler = _find_compiler()
    if compiler is None:
        for path in sorted(cache_folder().glob(f"{stem}-gcc*/{_LIBRARY}")):
            if _is_sound(path, path.parent.name):
                return path
        raise NoCompilerError(
            "The simulated GPU is built on first use, and g++ is not installed.",
            "Install it (Debian and Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++), or set CXX to it.",
        )
    name = f"{stem}-gcc{_compiler_version(compiler)}"
    path = cache_folder() / name / _LIBRARY
    if _is_sound(path, name):
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(path.with_suffix(".lock"), wheel):
            if not _is_sound(path, name):  # Another process may have built it while this one waited.
                _build(compiler, wheel, path, name)
    except OSError as error:
        raise BuildFailedError(
            f"The simulated GPU cannot be kept in {path.parent}: {error.strerror or error}.",
            "Point XDG_CACHE_HOME at a folder that can be written.",
        ) from error
    return path


def cache_folder() -> Path:
    """Where libraries are kept: `$XDG_CACHE_HOME/tfplace/simulate`, or that under `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "tfplace" / "simulate"


def _version() -> str:
    module = sys.modules.get("tensorflow")
    if module is not None and isinstance(getattr(module, "__version__", None), str):
        return str(module.__version__)
    for name in _DISTRIBUTIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return "of unknown version"


def _is_cuda_build(root: Path) -> bool:
    try:
        text = (root / "python" / "platform" / "build_info.py").read_text(encoding="utf-8")
    except OSError:
        return False
    return re.search(r"""['"]is_cuda_build['"]\s*[,:]\s*True""", text) is not None


def _source_key(wheel: Wheel) -> str:
    digest = hashlib.sha256(SOURCE.read_bytes())
    # Two builds of one version differ in their main library.
    for library in sorted(wheel.root.glob("libtensorflow_*.so*")):
        digest.update(f"{library.name} {library.stat().st_size}\n".encode())
    return digest.hexdigest()[:16]


def _find_compiler() -> str | None:
    return shutil.which(os.environ.get("CXX") or "g++")


def _compiler_version(compiler: str) -> str:
    try:
        # Some drivers answer the first option with the major number only.
        done = subprocess.run(
            [compiler, "-dumpfullversion", "-dumpversion"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoCompilerError(f"{compiler} does not run: {error}.", "Install g++, or set CXX to one.") from error
    return re.sub(r"[^\w.]", "_", done.stdout.strip()) or "unknown"


def _checksum(content: bytes, name: str) -> bytes:
    return _TRAILER + hashlib.sha256(name.encode() + b"\0" + content).hexdigest().encode()


def _is_sound(path: Path, name: str) -> bool:
    """Whether the file is whole and was built for the folder that it lies in."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    size = len(_checksum(b"", name))
    return len(data) > size and data[-size:] == _checksum(data[:-size], name)


@contextlib.contextmanager
def _lock(path: Path, wheel: Wheel) -> Iterator[None]:
    with open(path, "a", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"waiting for another process that builds the simulated GPU for TensorFlow {wheel.version}\n")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _say(text: str, start: bool = True) -> None:
    with contextlib.suppress(OSError, ValueError):  # stderr may be closed.
        sys.stderr.write(f"tfplace: {text}" if start else text)
        sys.stderr.flush()


def _build(compiler: str, wheel: Wheel, path: Path, name: str) -> None:
    began = time.monotonic()
    _say(f"building the simulated GPU for TensorFlow {wheel.version} (once, about 15 s) ...")
    ended = " failed\n"
    for left_over in path.parent.glob("build-*"):  # Of a killed build: the lock is ours.
        shutil.rmtree(left_over, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix="build-", dir=path.parent))
    try:
        product = folder / _LIBRARY
        _compile(_command(compiler, wheel, product), folder)
        content = product.read_bytes()
        with open(product, "ab") as file:
            file.write(_checksum(content, name))
            file.flush()
            os.fsync(file.fileno())
        os.replace(product, path)
        ended = f" done in {time.monotonic() - began:.0f} s\n"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _say(ended, start=False)


def _command(compiler: str, wheel: Wheel, product: Path) -> list[str]:
    environ = {key: value for key, value in os.environ.items() if key != "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"}
    environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    asked = subprocess.run(
        [sys.executable, "-c", _FLAGS_PROGRAM], capture_output=True, text=True, env=environ, check=False
    )
    try:
        version, compile_flags, link_flags = json.loads(asked.stdout.splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise UnsupportedTensorFlowError(
            f"TensorFlow {wheel.version} does not import: {_last_line(asked.stderr)}", "Repair the installation first."
        ) from error
    # XLA's kernel creator lives in the second library.
    options = ["-shared", "-fPIC", "-O1", "-w", "-fvisibility=hidden", f'-DTFPLACE_TF_VERSION="{version}"']
    libraries = [*link_flags, "-l:libtensorflow_cc.so.2"]
    return [compiler, *options, *compile_flags, str(SOURCE), "-o", str(product), *libraries]


def _compile(command: list[str], folder: Path) -> None:
    """Runs g++ in a process group of its own, so that an interrupt here ends all of it."""
    environ = {**os.environ, "TMPDIR": str(folder), "LC_ALL": "C"}
    log = folder / "log.txt"
    with (
        open(log, "w", encoding="utf-8") as output,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environ, start_new_session=True
        ) as process,
    ):
        try:
            code = process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    if code != 0:
        text = log.read_text(encoding="utf-8", errors="replace")
        errors = [line for line in text.splitlines() if "error" in line or "undefined" in line]
        first = errors[0] if errors else _last_line(text)
        raise BuildFailedError(
            f"g++ could not build the simulated GPU (exit code {code}): {first[:400]}",
            "It needs g++ 9 or newer, and a TensorFlow version that tfplace knows.",
        )


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:400] if lines else "no message"
