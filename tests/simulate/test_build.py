"""The device is built once, whatever happens, and never mistaken for another."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from simulated_runs import begin, finish, python

from tfplace.errors import TfplaceError
from tfplace.simulate import build
from tfplace.simulate.errors import (
    BuildFailedError,
    NoCompilerError,
    UnsupportedPlatformError,
    UnsupportedTensorFlowError,
)

ASK = "from tfplace.simulate.build import library_path; print(library_path())"

# Answers the version, notes each call, writes its product, and does what MODE says in between.
COMPILER = """#!/bin/sh
case "$1" in -dump*) echo 99.1.0; exit 0;; esac
echo call >> "{log}"
{action}
while [ "$1" != -o ]; do shift; done
echo "{content}" > "$2"
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Puts a compiler in place that does `action`; returns a function that counts its runs."""

    def install(action="", content="library"):
        log, path = tmp_path / "log", tmp_path / "g++-fake"
        path.write_text(COMPILER.format(log=log, action=action, content=content))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("CXX", str(path))
        return lambda: log.read_text().count("call") if log.exists() else 0

    # Flags are asked of a child that imports TensorFlow; not needed here.
    monkeypatch.setattr(build, "_command", lambda program, wheel, product: [program, "-shared", "-o", str(product)])
    return install


def files(folder):
    return sorted(str(p.relative_to(folder)).split("/", 3)[-1] for p in folder.rglob("*") if p.is_file())


def test_a_second_call_does_not_build(cache, compiler):
    runs = compiler()
    first = build.library_path()
    assert build.library_path() == first
    assert runs() == 1
    assert first.read_bytes().startswith(b"library\n")
    assert files(cache) == ["libtfplace_simulated_gpu.lock", "libtfplace_simulated_gpu.so"]


def test_the_folder_names_tensorflow_source_and_compiler(cache, compiler, monkeypatch):
    compiler()
    name = build.library_path().parent.name
    assert name.startswith(f"tf{build.find_wheel().version}-")
    assert name.endswith("-gcc99.1.0")
    other = cache / "device.cc"
    other.write_text("// another source")
    monkeypatch.setattr(build, "SOURCE", other)
    assert build.library_path().parent.name != name


@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_a_damaged_library_is_built_again(cache, compiler, damage):
    runs = compiler()
    path = build.library_path()
    path.write_bytes(path.read_bytes()[:-1] if damage is None else damage)
    assert build.library_path() == path
    assert runs() == 2
    assert path.read_bytes().startswith(b"library\n")


def test_a_library_of_another_version_is_built_again(cache, compiler):
    runs = compiler()
    path = build.library_path()
    other = path.parent.with_name(path.parent.name.replace("tf2", "tf1")) / path.name
    other.parent.mkdir()
    content = b"for another version\n"
    other.write_bytes(content + build._checksum(content, other.parent.name))  # Whole, in its own place.
    assert build._is_sound(other, other.parent.name)
    path.write_bytes(other.read_bytes())
    build.library_path()
    assert runs() == 2


def test_without_a_compiler_the_error_names_the_cure(cache, monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/g++")
    with pytest.raises(NoCompilerError) as caught:
        build.library_path()
    assert "apt-get install g++" in caught.value.hint
    assert isinstance(caught.value, TfplaceError)


def test_without_a_compiler_a_library_in_the_cache_still_serves(cache, compiler, monkeypatch):
    compiler()
    path = build.library_path()
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert build.library_path() == path


def test_a_compilers_refusal_is_told_and_leaves_nothing(cache, compiler):
    compiler("echo 'device.cc:1: error: boom' >&2; exit 3")
    with pytest.raises(BuildFailedError, match=r"exit code 3.*error: boom"):
        build.library_path()
    assert files(cache) == ["libtfplace_simulated_gpu.lock"]


def test_a_cache_that_cannot_be_written_is_told(tmp_path, compiler, monkeypatch):
    compiler()
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(BuildFailedError) as caught:
        build.library_path()
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_a_relative_cache_home_is_ignored(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", "/home/someone")
    assert build.cache_folder() == Path("/home/someone/.cache/tfplace/simulate")


def test_other_systems_are_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnsupportedPlatformError, match="Linux only"):
        build.find_wheel()


def test_no_tensorflow_is_told(monkeypatch):
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedTensorFlowError, match="not installed"):
        build.find_wheel()


def test_an_old_tensorflow_is_refused(monkeypatch):
    monkeypatch.setattr(build, "_version", lambda: "2.9.3")
    with pytest.raises(UnsupportedTensorFlowError, match=r"2\.9\.3 is too old"):
        build.find_wheel()


def test_a_wheel_without_cuda_is_refused(tmp_path, monkeypatch):
    package = tmp_path / "tensorflow" / "python" / "platform"
    package.mkdir(parents=True)
    (tmp_path / "tensorflow" / "__init__.py").touch()
    (package / "build_info.py").write_text("build_info = dict([('is_cuda_build', False)])")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    with pytest.raises(UnsupportedTensorFlowError) as caught:
        build.find_wheel()
    assert "tensorflow-cpu" in caught.value.hint


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)


def children_with(text):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text in path.read_bytes().decode(errors="replace"):
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def builder(tmp_path, cache):
    """A build that hangs in its compiler, in a process of its own."""
    marker = f"86{os.getpid()}"  # The compiler's own child: `sleep` for a number of seconds that tells it apart.
    log, fake = tmp_path / "log", tmp_path / "g++-slow"
    fake.write_text(COMPILER.format(log=log, action=f"sleep {marker}", content="late"))
    fake.chmod(0o755)
    process = begin("-c", ASK, XDG_CACHE_HOME=str(cache), CXX=str(fake))
    wait_for(log.exists)
    wait_for(lambda: children_with(f"sleep\0{marker}"))
    return process, f"sleep\0{marker}"


def test_an_interrupted_build_leaves_no_library_and_no_process(tmp_path, cache, compiler):
    process, marker = builder(tmp_path, cache)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert " ... failed" in err
    wait_for(lambda: not children_with(marker))
    assert files(cache) == ["libtfplace_simulated_gpu.lock"]


def test_after_a_killed_build_the_next_one_cleans_up(tmp_path, cache, compiler):
    process, marker = builder(tmp_path, cache)
    process.kill()
    process.communicate()
    for child in children_with(marker):
        os.kill(int(child), signal.SIGKILL)
    runs = compiler()
    # The slow compiler claims the same version, so this is the same place in the cache.
    path = build.library_path()
    assert path.read_bytes().startswith(b"library\n")
    assert runs() == 2  # The log is shared with the slow one.
    assert not list(path.parent.glob("build-*"))


def test_eight_first_builds_at_once_build_one_library(tmp_path):
    cache = tmp_path / "cache"
    processes = [begin("-c", ASK, XDG_CACHE_HOME=str(cache)) for _ in range(8)]
    results = [finish(process) for process in processes]
    paths = {out.strip() for out, _ in results}
    assert len(paths) == 1
    assert sum("building the simulated GPU" in err for _, err in results) == 1
    assert files(cache) == ["libtfplace_simulated_gpu.lock", "libtfplace_simulated_gpu.so"]
    # And it works.
    code = "import tfplace.simulate as s; s.start(); import tensorflow as tf; print(tf.ones([2]).device)"
    assert python(code, XDG_CACHE_HOME=str(cache)).strip().endswith("GPU:0")
    assert subprocess.run(["find", str(cache), "-name", "build-*"], capture_output=True, check=True).stdout == b""
