"""The file: whole or none, read by protobuf as RunMetadata; no TensorFlow needed."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfplace.capture import schedule, writer
from tfplace.errors import OutputError, UsageError

ROOT = Path(__file__).parent.parent.parent


class Message:
    """Stands in for RunMetadata."""

    def __init__(self, text: str = "step_stats {\n}\n", data: bytes = b"\x0a\x00") -> None:
        self._text, self._data = text, data

    def __str__(self) -> str:
        return self._text

    def SerializeToString(self) -> bytes:
        return self._data


CONTEXT = {"tf_version": "2.21.0", "notes": [], "steps": [{"num": 1, "text": "größe\n# tfplace: {}"}]}


def context_of(text: str) -> dict:
    merged: dict = {}
    for line in text.splitlines():
        if line.startswith("# tfplace: "):
            merged.update(json.loads(line.removeprefix("# tfplace: ")))
    return merged


def test_text_carries_the_context_in_comment_lines_at_the_top(tmp_path):
    writer.write_trace(str(tmp_path / "a.pbtxt"), Message(), CONTEXT)
    text = (tmp_path / "a.pbtxt").read_text()
    assert context_of(text) == CONTEXT
    comments = [line.startswith("#") for line in text.splitlines()]
    assert comments == sorted(comments, reverse=True)
    assert text.endswith("step_stats {\n}\n")


def test_binary_carries_the_context_as_field_20100(tmp_path):
    writer.write_trace(str(tmp_path / "a.pb"), Message(), CONTEXT)
    data = (tmp_path / "a.pb").read_bytes()
    assert data[:2] == b"\x0a\x00"
    # 20100 << 3 | 2 = 160802 = 0x27422, in groups of seven bits from the lowest: 0x22 0x68 0x09
    assert data[2:5] == bytes([0x22 | 0x80, 0x68 | 0x80, 0x09])
    assert data[5] == len(data) - 6 < 128
    assert json.loads(data[6:]) == CONTEXT


@pytest.mark.parametrize("name", ["a.pb.gz", "a.pbtxt.gz", "A.PBTXT.GZ"])
def test_gz_is_the_same_compressed(tmp_path, name):
    writer.write_trace(str(tmp_path / name), Message(), CONTEXT)
    data = gzip.decompress((tmp_path / name).read_bytes())
    assert data.startswith(b"# tfplace: " if "pbtxt" in name.lower() else b"\x0a\x00")


def test_existing_file_stays_when_writing_fails(tmp_path, monkeypatch):
    target = tmp_path / "a.pb"
    target.write_bytes(b"before")
    monkeypatch.setattr(writer.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OutputError, match="No space left"):
        writer.write_atomically(str(target), b"after")
    assert target.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["a.pb"]


def test_ctrl_c_while_writing_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(writer.os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        writer.write_atomically(str(tmp_path / "a.pb"), b"after")
    assert os.listdir(tmp_path) == []


def test_sigkill_at_50_random_moments_never_leaves_a_broken_file(tmp_path):
    """Half of them while the first file is written, half later: then there is one, however slow the machine."""
    target = tmp_path / "a.pb"
    program = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from tfplace.capture.writer import write_atomically\n"
        "number = 0\n"
        "while True:\n"
        "    print(number, flush=True)\n"
        "    number += 1\n"
        "    write_atomically(sys.argv[1], bytes([number % 256]) * 3_000_000)\n"
    )
    seed = random.Random(4)
    for turn in range(50):
        command = [sys.executable, "-S", "-c", program, str(target), str(ROOT)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            child.stdout.readline()
            if turn % 2:
                child.stdout.readline()  # the first file is whole
            time.sleep(seed.random() * (0.05 if turn % 2 else 0.02))
            child.send_signal(signal.SIGKILL)
            child.stdout.read()
        assert turn % 2 == 0 or target.exists()
        if target.exists():
            data = target.read_bytes()
            assert len(data) == 3_000_000
            assert data.count(data[:1]) == len(data)
            target.unlink()


@pytest.mark.parametrize("name", ["trace", "trace.txt", "trace.json", "trace.gz", "trace.pb.zip", 3, None])
def test_path_must_name_a_format(name):
    with pytest.raises(UsageError):
        schedule.check_path(name)


def test_path_is_checked_against_the_folder(tmp_path):
    with pytest.raises(OutputError, match="not a folder"):
        schedule.check_path(str(tmp_path / "no" / "trace.pb"))
    (tmp_path / "folder.pb").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        schedule.check_path(str(tmp_path / "folder.pb"))
    assert schedule.check_path(tmp_path / "trace.pbtxt.gz") == str(tmp_path / "trace.pbtxt.gz")


@pytest.mark.parametrize("given", [{"skip": -1}, {"steps": 0}, {"skip": 1.5}, {"steps": True}])
def test_counts_must_make_sense(tmp_path, given):
    with pytest.raises(UsageError):
        schedule.Options(str(tmp_path / "a.pb"), **given)


def test_schedule_times_the_calls_after_the_skipped():
    options = schedule.Options("trace.pb", skip=2, steps=3)
    assert [options.is_timed(call) for call in range(7)] == [False, False, True, True, True, False, False]
    assert options.last == 5
