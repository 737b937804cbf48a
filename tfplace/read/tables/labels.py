"""What the names and labels of step_stats rows say, in the spellings of every TensorFlow era.

Nothing here fails on an odd name: what cannot be read is null.

Source: tensorflow/core/common_runtime/step_stats_collector.cc (SetTimelineLabel, and RecordDataTransfer of
    distributed_runtime/worker_cache_logger.cc); platform/default/device_tracer.cc (TF 0.x to 2.0);
    core/profiler/internal/gpu/{cupti_tracer,gpu_tracer}.cc (TF 2.1 to 2.4);
    core/profiler/convert/xplane_to_step_stats.cc (since).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NODE = r"[A-Za-z0-9._][A-Za-z0-9_.\\/>-]*"
_NODE_OP = re.compile(rf"({_NODE}):([A-Z_][A-Za-z0-9_>]*)", re.ASCII)
_NODE_NAME = re.compile(_NODE, re.ASCII)
_MEMORY_PREFIX = re.compile(r"\[[^\[\]]*\] ")
_OP_CALL = re.compile(r"([A-Z_][A-Za-z0-9_>]*)\((.*)\)", re.ASCII | re.DOTALL)
_METADATA = re.compile(r"#[^#]*#")
_DEVICE_IN_METADATA = re.compile(r"(?:^|[#,])device=([^,#]+)")

_DIRECTION = re.compile(r"memcpy\s?([HDPA])(?:to|2)([HDPA])(?![A-Za-z])", re.ASCII | re.IGNORECASE)
_MEMCPY = r"memcpy(?:\s?[HDPA](?:to|2)[HDPA]|other|<?unknown>?)?"
_COPY_TAIL = re.compile(rf"::?{_MEMCPY}$", re.ASCII | re.IGNORECASE)
_COPY_WORD = re.compile(rf"(?:^|[:<\s]){_MEMCPY}(?![A-Za-z0-9_])", re.ASCII | re.IGNORECASE)
_MEMSET_WORD = re.compile(r"(?:^|[:<\s])memset(?:d\d+)?(?![A-Za-z0-9_])", re.ASCII | re.IGNORECASE)
_SIZES = (
    re.compile(r"(?:^|\s)(?:size|num_bytes|bytes):\s?(\d+)", re.ASCII),
    re.compile(r"(?:^|\s)(\d+) bytes\b", re.ASCII),
)
_OLD_MEMORY = re.compile(r"\(([A-Za-z<>]+) to ([A-Za-z<>]+)\)", re.ASCII)
_NEW_MEMORY = re.compile(r"kind_src:(\w+)\s+kind_dst:(\w+)", re.ASCII)
_DESTINATION = re.compile(r"(?:\bto device:|(?:^|\s)dest:)(\d+)", re.ASCII)
_EDGE_NAME = re.compile(r"#(?:[^#]*,)?edge_name=([^#,]*)[#,]")
_EDGE_TRANSFER_OPS = frozenset({"_Send", "_Recv", "_HostSend", "_HostRecv"})
_GPU_ALLOCATOR = re.compile(r"gpu(?:_(\d{1,9}))?_(?!host)[a-z]\w*", re.ASCII | re.IGNORECASE)
_RECV_TENSOR = re.compile(r"(?:\[[^\[\]]*\] )?(\S+) from (/job:\S+) to (/job:\S+)", re.ASCII)

_DIRECTIONS = {
    "HH": "H2H",
    "HD": "H2D",
    "DH": "D2H",
    "DD": "D2D",
    "PP": "P2P",
    # CUDA arrays are device memory
    "HA": "H2D",
    "AH": "D2H",
    "AA": "D2D",
    "AD": "D2D",
    "DA": "D2D",
}
_LARGEST = 1 << 62  # a size beyond it is damage, and would not fit a column


def gpu_of_allocator(name: str) -> int | None:
    """Return the number of the GPU whose memory an allocator gives out ('GPU_1_bfc': 1); -1 for a GPU without a number.

    Null for host memory, pinned memory included ('cpu', 'cuda_host_bfc', 'gpu_host_bfc').
    """
    found = _GPU_ALLOCATOR.fullmatch(name)
    return None if found is None else int(found[1] or -1)


@dataclass(frozen=True)
class CopyParts:
    """What the row of a copy says about it.

    Attributes:
        direction: H2D, D2H, D2D, P2P, H2H; null where neither name, label nor lane tells.
        num_bytes: Null where not recorded.
        src_memory: 'pageable', 'pinned', 'device', 'array' ...; null not recorded.
        dst_memory: The same of the other end.
        edge_name: The tensor_name of the Send: 'edge_9_x'.
        node_name: Node in whose name the copy was made.
        op: Op that issued the copy inside its kernel; null for the copy of an edge.
        destination: Number of the GPU written to, where the label has it.
    """

    direction: str | None = None
    num_bytes: int | None = None
    src_memory: str | None = None
    dst_memory: str | None = None
    edge_name: str | None = None
    node_name: str | None = None
    op: str | None = None
    destination: int | None = None


def is_copy(name: str, label: str, lane: str = "") -> bool:
    """Tell whether a row of a GPU lane is a copy."""
    return bool(_COPY_TAIL.search(name) or _COPY_WORD.match(name) or _COPY_WORD.match(label) or _COPY_WORD.search(lane))


def is_memset(name: str, label: str, lane: str = "") -> bool:
    """Tell whether a row of a GPU lane fills memory."""
    return bool(_MEMSET_WORD.search(name) or _MEMSET_WORD.match(label) or _MEMSET_WORD.search(lane))


def parse_copy(name: str, label: str, lane: str = "") -> CopyParts:
    """Return what the row of a copy says; every unknown part is null.

    Args:
        name: node_name, for example 'edge_9_x:MEMCPYDtoH', 'MatMul/_4:_Send#id=5#::edge_3_MatMul::MemcpyDtoD',
            'Train/Model/concat:ConcatV2:MEMCPYHtoD', 'unknown:MEMCPYDtoH' or 'x/_13:_Send'.
        label: timeline_label, for example 'MEMCPYDtoH 400 bytes (Device to Pinned)', '400 bytes',
            'x bytes:400 aync to device:1' or 'MemcpyH2D kind_src:pageable kind_dst:device size:400 dest:0 async:1'.
        lane: The lane's own part: 'stream#2:MemcpyHtoD', 'stream:14<MemcpyH2D>'.
    """
    letters = _DIRECTION.search(label) or _DIRECTION.search(name) or _DIRECTION.search(lane)
    size = next((found for pattern in _SIZES if (found := pattern.search(label))), None)
    memory = _OLD_MEMORY.search(label) or _NEW_MEMORY.search(label)
    destination = _DESTINATION.search(label)
    edge, node, op = _copy_subject(name, label)
    return CopyParts(
        direction=_DIRECTIONS.get((letters[1] + letters[2]).upper()) if letters else None,
        num_bytes=_whole(size[1]) if size else None,
        src_memory=_memory(memory[1]) if memory else None,
        dst_memory=_memory(memory[2]) if memory else None,
        edge_name=edge,
        node_name=node,
        op=op,
        destination=_whole(destination[1]) if destination else None,
    )


def _copy_subject(name: str, label: str) -> tuple[str | None, str | None, str | None]:
    """Return (edge, node, op): whose copy it is."""
    stated = _EDGE_NAME.search(name) or _EDGE_NAME.search(label)
    edge = stated[1] or None if stated else None
    if edge == "copy":  # an eager copy: the word stands for no edge
        edge = None
    node = op = None
    tail = _COPY_TAIL.search(name)
    parts = _METADATA.sub("", name[: tail.start()] if tail else name).split("::")
    for part in reversed(parts):
        pair = _NODE_OP.fullmatch(part)
        if pair and node is None:
            node, op = pair[1], pair[2]
        elif edge is None and part.startswith("edge_"):
            edge = part
        elif node is None and part != "unknown" and not _COPY_WORD.match(part) and _NODE_NAME.fullmatch(part):
            node = part
    if op in _EDGE_TRANSFER_OPS or (edge and op):
        op = None
    return edge, node, op


def _memory(word: str) -> str | None:
    lower = word.lower()
    return None if lower in ("unknown", "<unknown>") else lower


def _whole(text: str) -> int | None:
    number = int(text) if len(text) < 20 else _LARGEST
    return number if number < _LARGEST else None


@dataclass(frozen=True)
class OpParts:
    """What the label of a host-side run says: `name = Op(a, b:1, ^c)`.

    Attributes:
        op: Op type.
        inputs: Inputs as TensorFlow spells them.
    """

    op: str
    inputs: tuple[str, ...] = ()


def parse_op_label(label: str, name: str) -> OpParts | None:
    """Return op and inputs of '[GPU_0_bfc 3.3MB 3.3MB] y = MatMul(a, b:1)'; null for any other label.

    Args:
        label: timeline_label.
        name: node_name of the same row, here 'y': the label must be about that node.
    """
    text = label
    while text.startswith("["):
        prefix = _MEMORY_PREFIX.match(text)
        if prefix is None:
            return None
        text = text[prefix.end() :]
    text, _, _ = text.partition(" @@")
    if not text.startswith(f"{name} = "):
        return None
    call = _OP_CALL.fullmatch(text[len(name) + 3 :])
    if call is None:
        return None
    return OpParts(call[1], tuple(call[2].split(", ")) if call[2] else ())


def parse_annotation(name: str, label: str = "") -> tuple[str | None, str | None]:
    """Return (node, op) of a kernel's or host thread's row; (null, null) where it names none.

    The row is named 'MatMul:MatMul', 'MatMul:MatMul#id=5,device=...#::maxwell_sgemm', or after the kernel with
    the annotation behind '@@' in the label. The innermost annotation wins.
    """
    for text in (name, label.rpartition("@@")[2] if "@@" in label else ""):
        if ":" not in text:
            continue
        for part in reversed(_METADATA.sub("", text).split("::")):
            pair = _NODE_OP.fullmatch(part)
            if pair and not part.startswith("edge_"):
                return pair[1], pair[2]
    return None, None


def parse_device_metadata(text: str) -> str | None:
    """Return the device of '#id=5,device=/job:...,async=false#': where the annotated op ran, for a copy its sender."""
    found = _DEVICE_IN_METADATA.search(text)
    return found[1] if found else None


def parse_recv_tensor(label: str) -> tuple[str, str, str] | None:
    """Return (edge, from device, to device) of a RecvTensor row between workers; null for any other label."""
    found = _RECV_TENSOR.fullmatch(label)
    return (found[1], found[2], found[3]) if found else None
