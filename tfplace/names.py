"""Names as TensorFlow makes them: devices, lanes, edges, node names; and names made safe to print."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_JOB = re.compile(r"/job:([^/]+)", re.ASCII)
_REPLICA = re.compile(r"/replica:(\d+)", re.ASCII)
_TASK = re.compile(r"/task:(\d+)", re.ASCII)
# '/device:GPU:0', the older '/gpu:0', and what people type: 'GPU:0', 'gpu'
_TYPED = re.compile(r"(?:^|/)device:([A-Za-z_][A-Za-z0-9_]*)(?::(\d+|\*))?", re.ASCII)
_OLD = re.compile(r"(?:^|/)(cpu|gpu|tpu)(?::(\d+|\*))?(?![A-Za-z0-9_:])", re.ASCII | re.IGNORECASE)
_HOST = re.compile(r"^/host:CPU\b", re.ASCII)
_MODEL = re.compile(r"^ \(([^)]*)\)")
_EDGE = re.compile(r"edge_(?:\d+_)?(.+)", re.DOTALL)
_SUFFIX = re.compile(r"/_\d+$", re.ASCII)

KINDS = ("CPU", "GPU", "TPU", "OTHER")


@dataclass(frozen=True)
class DeviceName:
    """The parts of a device or lane name; null where the name lacks them.

    Attributes:
        job: 'worker'.
        replica: 0.
        task_index: 1.
        type: 'CPU', 'GPU', 'XLA_GPU' ...; always upper case.
        ordinal: The 0 of GPU:0.
        lane: What follows the device: 'stream:14<MemcpyH2D>', 'memcpy', 'sync',
            'context#0/stream#2:MemcpyHtoD'; '' for a device by itself.
        model: The 'Quadro P5000' of '/gpu:0 (Quadro P5000)/context#0/stream#1:Kernel'.
        host_threads: True for the '/host:CPU' lane, which stands for the host's threads.
    """

    job: str | None = None
    replica: int | None = None
    task_index: int | None = None
    type: str | None = None
    ordinal: int | None = None
    lane: str = ""
    model: str | None = None
    host_threads: bool = False

    @property
    def task(self) -> str | None:
        """Return '/job:worker/replica:0/task:1', with the parts the name has; null where it has none."""
        parts = []
        if self.job is not None:
            parts.append(f"/job:{self.job}")
        if self.replica is not None:
            parts.append(f"/replica:{self.replica}")
        if self.task_index is not None:
            parts.append(f"/task:{self.task_index}")
        return "".join(parts) or None

    @property
    def kind(self) -> str:
        """Return CPU, GPU, TPU or OTHER."""
        return self.type if self.type in KINDS else "OTHER"

    @property
    def short(self) -> str:
        """Return 'GPU:0'; 'GPU' where no ordinal is given; '' where no device is named."""
        if self.type is None:
            return ""
        return self.type if self.ordinal is None else f"{self.type}:{self.ordinal}"

    @property
    def is_full(self) -> bool:
        """Tell whether job, replica, task, type and ordinal are all there: an assigned device."""
        return None not in (self.job, self.replica, self.task_index, self.type, self.ordinal)


@lru_cache(maxsize=4096)
def parse_device(name: str) -> DeviceName:
    """Return the parts of a device or lane name; never fails, unknown parts are null.

    Source: tensorflow/core/util/device_name_utils.cc (ParseFullName, the older '/gpu:0' included) and the
        lane names of device_tracer.cc, gpu_tracer.cc and xplane_to_step_stats.cc.
    """
    if _HOST.match(name):
        return DeviceName(type="CPU", lane=name[len("/host:CPU") :].lstrip("/"), host_threads=True)
    job, replica, task = _JOB.search(name), _REPLICA.search(name), _TASK.search(name)
    typed = _TYPED.search(name) or _OLD.search(name) or _bare(name)
    parts = DeviceName(
        job=job[1] if job else None,
        replica=_number(replica[1]) if replica else None,
        task_index=_number(task[1]) if task else None,
    )
    if typed is None:
        return parts
    rest = name[typed.end() :]
    model = _MODEL.match(rest)
    lane = rest[model.end() :] if model else rest
    return DeviceName(
        job=parts.job,
        replica=parts.replica,
        task_index=parts.task_index,
        type=typed[1].upper(),
        ordinal=_number(typed[2]),
        lane=lane.lstrip("/"),
        model=model[1] if model else None,
    )


def _bare(name: str) -> re.Match[str] | None:
    """Match what people type: 'XLA_GPU:0', '/TPU:1'."""
    return re.fullmatch(r"/?([A-Za-z_][A-Za-z0-9_]*):(\d+)", name, re.ASCII)


def _number(text: str | None) -> int | None:
    # more digits than any real device: a hostile name, not a number
    return int(text) if text and text != "*" and len(text) <= 9 else None


def edge_producer(edge_name: str) -> str | None:
    """Return the node that a Send's tensor_name stands for; null where it has neither form.

    'edge_9_x' and 'edge__recv_x_0' (an edge without a number) are made by the graph partitioner,
    'Placeholder:0' by a client's feed or fetch.

    Source: tensorflow/core/graph/graph_partition.cc (SetSendRecvAttrs), common_runtime/graph_execution_state.cc.
    """
    match = _EDGE.fullmatch(edge_name)
    if match:
        return match[1]
    node, colon, slot = edge_name.rpartition(":")
    return node if colon and node and slot.isdigit() else None


def strip_suffix(name: str) -> str:
    """Return 'x' for 'x/_5', the name a partitioner gives the far end of x; other names unchanged."""
    return _SUFFIX.sub("", name) or name


def printable(text: object, limit: int = 200) -> str:
    r"""Return a name that is safe to print: one line, no control or direction-changing characters, not too long.

    Args:
        text: Any text; null gives ''.
        limit: Longest result; the middle of a longer text becomes '…', since both ends of a node name tell.

    Returns:
        Text in which an escape character reads '\x1b', a right-to-left override '\u202e'.
    """
    if text is None:
        return ""
    whole = str(text)
    if len(whole) > limit:
        head = (limit - 1) * 2 // 3
        tail = limit - 1 - head
        whole = whole[:head] + "…" + (whole[-tail:] if tail > 0 else "")
    if whole.isprintable():
        return whole
    escaped = "".join(ch if ch.isprintable() else _escape(ch) for ch in whole)
    return escaped if len(escaped) <= limit else printable(escaped, limit)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
