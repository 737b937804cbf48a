"""Other files that people have beside their traces: what each is, and what to do instead."""

from __future__ import annotations

import re
from typing import NamedTuple

HOW_TO_RECORD = (
    "Record a step: `tfplace record SCRIPT`, or @tfplace.trace on the step; in a TF 1.x session "
    "options = tf.compat.v1.RunOptions(trace_level=3, output_partition_graphs=True), "
    "metadata = tf.compat.v1.RunMetadata(), session.run(..., options=options, run_metadata=metadata), "
    "open('trace.pb', 'wb').write(metadata.SerializeToString())."
)
GIVE_A_TRACE = "tfplace reads RunMetadata, StepStats and GraphDef: binary, text or JSON, also in gzip."
_PROFILER = "It has no partition graphs, so it cannot say what crosses between devices and why. "
_UNPACK = "Unpack it, and give tfplace the trace inside."


class Format(NamedTuple):
    """A kind of file that is no input of tfplace.

    Attributes:
        name: With its article: 'a PNG image'.
        hint: What to do instead.
    """

    name: str
    hint: str = GIVE_A_TRACE


XSPACE = Format("an XSpace of the TensorFlow or JAX profiler (xplane)", _PROFILER + HOW_TO_RECORD)
XSPACE_TEXT = Format("an XSpace of the TensorFlow or JAX profiler, as text", _PROFILER + HOW_TO_RECORD)
PROFILER_TRACE = Format("a Trace of the TensorFlow 2.0 profiler (local.trace)", _PROFILER + HOW_TO_RECORD)
PROFILER_JSON = Format("a timeline of the TensorFlow profiler (trace.json)", _PROFILER + HOW_TO_RECORD)
TIMELINE = Format(
    "a TensorFlow Timeline for Chrome",
    "A Timeline holds neither bytes nor graphs: give tfplace the RunMetadata that it was made from, "
    "written by open('trace.pb', 'wb').write(run_metadata.SerializeToString()).",
)
KINETO = Format("a PyTorch profiler trace (Kineto)", "tfplace is about TensorFlow; see torch.profiler for this one.")
OWN_TIMELINE = Format("a timeline that tfplace wrote", "Give tfplace the trace that it was made from.")
PERFETTO = Format(
    "a Perfetto trace", "It holds what was drawn, no placement: give tfplace the RunMetadata. " + HOW_TO_RECORD
)
HOROVOD = Format("a Horovod timeline", "It holds the phases of collectives, no placement. " + HOW_TO_RECORD)
CHROME = Format("a timeline for Chrome by some other program", "It holds no placement. " + HOW_TO_RECORD)
MEMORY_PROFILE = Format("a memory profile of the TensorFlow profiler", "It holds no placement. " + HOW_TO_RECORD)
OVERVIEW = Format("an overview page of the TensorFlow profiler", "It holds totals, no placement. " + HOW_TO_RECORD)
INPUT_PIPELINE = Format("an input pipeline analysis of the TensorFlow profiler", OVERVIEW.hint)
KERNEL_STATS = Format("a table of kernel times of the TensorFlow profiler (kernel_stats)", OVERVIEW.hint)
TF_STATS = Format("a table of op times of the TensorFlow profiler (tensorflow_stats)", OVERVIEW.hint)
SAVED_MODEL = Format(
    "a SavedModel", "For the placement of its graph give the GraphDef alone; for what crosses: " + HOW_TO_RECORD
)
META_GRAPH = Format("a MetaGraphDef (.meta of a checkpoint)", SAVED_MODEL.hint)
CHECKPOINT = Format("a TensorFlow checkpoint", "It holds values of variables, no placement. " + HOW_TO_RECORD)
EVENTS = Format(
    "a TensorFlow events file (TensorBoard log)",
    "Write the RunMetadata itself: open('trace.pb', 'wb').write(run_metadata.SerializeToString()).",
)
TFRECORD = Format("a TFRecord file")
NOTEBOOK = Format("a Jupyter notebook")
GZIP_TWICE = Format("compressed by gzip twice", "Run gunzip on it once.")
MANGLED = Format(
    "a binary file that was damaged by being saved as text: U+FFFD stands for each byte that is not UTF-8",
    "Copy the original again in binary mode; what was lost here cannot be had back.",
)
OTHER_PROTOBUF = Format("a protobuf message of a kind that tfplace does not know")
EMPTY_HINT = "A RunMetadata stays empty unless the run is told to fill it. " + HOW_TO_RECORD

# beginnings of files, longest first where one begins another
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", Format("a PNG image")),
    (b"\xff\xd8\xff", Format("a JPEG image")),
    (b"GIF8", Format("a GIF image")),
    (b"%PDF-", Format("a PDF document")),
    (b"\x7fELF", Format("an ELF program or library")),
    (b"MZ\x90\x00", Format("a Windows program or library")),
    (b"\xcf\xfa\xed\xfe", Format("a macOS program or library")),
    (b"\xca\xfe\xba\xbe", Format("a macOS program or a Java class")),
    (b"PK\x03\x04", Format("a zip archive (also .keras, .npz and .docx are such)", _UNPACK)),
    (b"PK\x05\x06", Format("an empty zip archive")),
    (b"\x28\xb5\x2f\xfd", Format("compressed by zstd", _UNPACK)),
    (b"BZh", Format("compressed by bzip2", _UNPACK)),
    (b"\xfd7zXZ\x00", Format("compressed by xz", _UNPACK)),
    (b"\x04\x22\x4d\x18", Format("compressed by lz4", _UNPACK)),
    (b"7z\xbc\xaf\x27\x1c", Format("a 7-Zip archive", _UNPACK)),
    (b"Rar!\x1a\x07", Format("a RAR archive", _UNPACK)),
    (b"\x89HDF\r\n\x1a\n", Format("an HDF5 file (Keras .h5)", CHECKPOINT.hint)),
    (b"\x93NUMPY", Format("a NumPy array")),
    (b"PAR1", Format("a Parquet table")),
    (b"ARROW1", Format("an Arrow table")),
    (b"SQLite format 3\x00", Format("an SQLite database (Nsight Systems exports such)", _PROFILER + HOW_TO_RECORD)),
    (b"\x80\x02", Format("a Python pickle")),
    (b"\x80\x03", Format("a Python pickle")),
    (b"\x80\x04", Format("a Python pickle")),
    (b"\x80\x05", Format("a Python pickle")),
)
_TAR = (257, b"ustar", Format("a tar archive", _UNPACK))
_TFLITE = (4, b"TFL3", Format("a TensorFlow Lite model"))
# the last eight bytes of a checkpoint's .index. Source: tensorflow/core/lib/io/format.h, kTableMagicNumber
_TABLE_END = bytes.fromhex("57fb808b247547db")

# beginnings of texts, after blanks
_TEXTS = (
    (re.compile(rb"<!doctype html|<html", re.IGNORECASE), Format("a web page (HTML)", "Download the raw file itself.")),
    (re.compile(rb"<\?xml|<svg"), Format("an XML document")),
    (re.compile(rb"version https://git-lfs"), Format("a Git LFS pointer, not the file itself", "Run git lfs pull.")),
    (re.compile(rb"HloModule "), Format("an XLA HLO module, as text")),
    (re.compile(rb"(?:strict )?digraph\b"), Format("a Graphviz graph")),
    (re.compile(rb"model_checkpoint_path\s*:"), CHECKPOINT),
    (re.compile(rb"saved_model_schema_version\s*:|meta_graphs\s*\{"), SAVED_MODEL),
    (re.compile(rb"meta_info_def\s*\{|graph_def\s*\{"), META_GRAPH),
    (re.compile(rb"planes\s*\{"), XSPACE_TEXT),
    (
        re.compile(rb"#!|(?:import|from) [\w.]+|def \w+\(|\"\"\"|'''"),
        Format("a program's source, not its trace", "Record its step, if it is Python: tfplace record SCRIPT."),
    ),
    (re.compile(rb"\$ |Traceback \(most recent|\d{4}-\d\d-\d\d[ T]\d\d:\d\d"), Format("a log, as text", HOW_TO_RECORD)),
)


def by_magic(data: bytes) -> Format | None:
    """Return the format that fixed bytes tell, if any."""
    for beginning, known in _MAGIC:
        if data.startswith(beginning):
            return known
    for offset, mark, known in (_TAR, _TFLITE):
        if data[offset : offset + len(mark)] == mark:
            return known
    return CHECKPOINT if data.endswith(_TABLE_END) else None


def by_text(beginning: bytes) -> Format | None:
    """Return the format of a text that is no trace, if it is known by how it begins."""
    for pattern, known in _TEXTS:
        if pattern.match(beginning):
            return known
    return None


def of_timeline(text: str) -> Format:
    """Tell the dialects of Chrome's trace format apart."""
    if '"title":"tfplace: ' in text[:1000] or '"title": "tfplace: ' in text[:1000]:
        return OWN_TIMELINE
    if '"schemaVersion"' in text or re.search(r'"cat"\s*:\s*"(?:kernel|gpu_memcpy|cuda_runtime|cpu_op|ac2g)"', text):
        return KINETO
    if re.search(r'"(?:NEGOTIATE_\w+|CYCLE_START|[^"]*Horovod[^"]*)"', text):
        return HOROVOD
    if re.search(r'"name"\s*:\s*"(?:Allocators|/[^"]* (?:Compute|Tensors))"', text):
        return TIMELINE
    if "highres-ticks" in text or re.search(r'"name"\s*:\s*"/(?:host|device):[^"]*"', text):
        return PROFILER_JSON
    return CHROME
