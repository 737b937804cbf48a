"""Traces that others recorded: every column of every event, and every graph, as the protobuf library reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format, text_format

from tests.read_reference import plain_columns, reference_columns
from tfplace.errors import TfplaceError
from tfplace.read.protos import RunMetadata
from tfplace.read.run_metadata import read_raw
from tfplace.read.text.file import read_any, read_plain
from tfplace.read.text.gate import NotCanonical

# kind in MANIFEST.tsv -> words of the refusal
REFUSED = {
    "Timeline JSON": "a TensorFlow Timeline",
    "TF2.0 legacy profiler Trace proto": "local.trace",
    "TF2 profiler xplane.pb": "an XSpace",
    "xplane.pb": "an XSpace",
    "xplane.pb CORRUPT": "damaged by being saved as text",
    "TF2 profiler trace.json.gz": "trace.json",
    "TF2 profiler memory_profile.json.gz": "a memory profile",
    "TF2 profiler overview_page.pb": "an overview page",
    "TF2 profiler kernel_stats.pb": "kernel_stats",
    "TF2 profiler tensorflow_stats.pb": "tensorflow_stats",
    "TF2 profiler input_pipeline.pb": "an input pipeline",
    "PyTorch profiler (Kineto)": "Kineto",
    "PyTorch Kineto chrome trace": "Kineto",
    "Horovod timeline": "a Horovod timeline",
    "TF events file": "1 RunMetadata in it, which is empty",
}


def manifest(folder: Path) -> list[tuple[Path, str]]:
    rows = (folder / "MANIFEST.tsv").read_text().splitlines()[1:]
    return [(folder / row.split("\t")[0], row.split("\t")[1]) for row in rows]


def by_protobuf(path: Path, kind: str) -> Any:
    """Return the message as the protobuf library reads it."""
    if "JSON" in kind:
        return json_format.ParseDict(
            json.loads(json.loads(path.read_text())), RunMetadata(), ignore_unknown_fields=True
        )
    if "text" in kind:
        return text_format.Parse(path.read_text(), RunMetadata(), allow_unknown_field=True)
    return RunMetadata.FromString(path.read_bytes())


def test_every_trace_reads_as_protobuf_reads_it(recorded: Path) -> None:
    seen = set()
    for path, kind in manifest(recorded):
        if "RunMetadata" not in kind:
            continue
        raw, expected = read_raw(str(path)), by_protobuf(path, kind)
        assert raw.notes == []
        assert raw.step_stats is not None
        assert plain_columns(raw.step_stats) == reference_columns(expected.step_stats), path.name
        assert [held.graph for held in raw.graphs] == list(expected.partition_graphs), path.name
        assert (raw.format == f"RunMetadata {raw.format.split()[1]}") and raw.format.split()[1] in kind
        seen.add(raw.format)
    assert seen == {"RunMetadata text", "RunMetadata binary", "RunMetadata JSON"}


def test_the_reader_of_any_text_and_the_fast_one_agree_on_every_text(recorded: Path) -> None:
    for path, kind in manifest(recorded):
        if "RunMetadata text" not in kind:
            continue
        text = path.read_bytes()
        expected = by_protobuf(path, kind)
        fast, any_text = read_plain(text, "RunMetadata"), read_any(text, "RunMetadata")
        for decoded in (fast, any_text):
            assert decoded.step_stats is not None
            assert plain_columns(decoded.step_stats) == reference_columns(expected.step_stats)
            assert list(decoded.message.partition_graphs) == list(expected.partition_graphs)
        unusual = text.replace(b" {\n", b": { # c\n")
        with pytest.raises(NotCanonical):
            read_plain(unusual, "RunMetadata")
        again = read_any(unusual, "RunMetadata")
        assert again.step_stats is not None
        assert plain_columns(again.step_stats) == reference_columns(expected.step_stats)


def test_every_other_file_is_named_in_one_sentence(recorded: Path) -> None:
    for path, kind in manifest(recorded):
        if "RunMetadata" in kind and "events" not in kind:
            continue
        words = [refusal for known, refusal in REFUSED.items() if kind.startswith(known)]
        assert words, kind
        with pytest.raises(TfplaceError) as caught:
            read_raw(str(path))
        assert words[-1] in caught.value.message, caught.value.message
        assert caught.value.message.count(". ") == 0
        assert caught.value.hint


def test_a_recorded_text_cut_at_many_bytes(recorded: Path, tmp_path: Path) -> None:
    whole = (recorded / "rm_text_cpu_feed_tiny.pbtxt").read_bytes()
    path = tmp_path / "cut.pbtxt"
    for end in range(0, len(whole), 61):
        path.write_bytes(whole[:end])
        try:
            raw = read_raw(str(path))
        except TfplaceError:
            continue
        complete = whole[:end].count(b"\n    }\n")
        assert raw.step_stats is not None
        assert len(raw.step_stats.node_name) <= complete
        assert raw.notes or whole[:end].rstrip().endswith(b"\n}")
