"""Write synthetic RunMetadata of a given size, shaped like those of a training step on two GPUs.

    python benchmarks/make_inputs.py FOLDER            step_2mb, step_25mb, step_120mb as .pbtxt and .pb,
                                                       and as unusual, but legal .pbtxt
    python benchmarks/make_inputs.py FOLDER --events   step_1m_events.pb

Every kernel and every copy stands twice (its stream and stream:all or memcpy), ops on devices have
memory and outputs, and partition graphs hold the nodes with their attributes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfplace.read.protos import RunMetadata

EPOCH_US = 1_600_000_000_000_000
JOB = "/job:localhost/replica:0/task:0"
OPS = ("Conv2D", "BiasAdd", "Relu", "MaxPool", "MatMul", "Conv2DBackpropFilter", "ReluGrad", "ApplyMomentum")
TEXT_BYTES_PER_LAYER = 58_300  # of text, for choosing the number of layers


class Step:
    """One training step under construction."""

    def __init__(self) -> None:
        self.message = RunMetadata()
        stats = self.message.step_stats
        names = [f"{JOB}/device:CPU:0", f"{JOB}/device:GPU:0", f"{JOB}/device:GPU:1"]
        for gpu in (0, 1):
            names += [f"/device:GPU:{gpu}/{lane}" for lane in ("stream:14", "stream:15", "stream:all", "memcpy")]
        self.lanes = {name: stats.dev_stats.add(device=name) for name in names}
        for thread in range(8):
            self.lanes[names[0]].thread_names[thread] = f"tf_Compute/{thread}"
        self.graphs = [self.message.partition_graphs.add() for _ in range(3)]
        self.clock = EPOCH_US
        self.serial = 0
        self.with_graph = True

    def event(self, lane: str, name: str, label: str, duration: int) -> Any:
        self.serial += 1
        event = self.lanes[lane].node_stats.add(node_name=name, timeline_label=label)
        event.all_start_micros = self.clock
        event.op_start_rel_micros = self.serial % 3
        event.op_end_rel_micros = duration
        event.all_end_rel_micros = duration + self.serial % 2
        event.scheduled_micros = self.clock - 5
        return event

    def again(self, lane: str, event: Any) -> None:
        """The same event on a summary lane."""
        self.lanes[lane].node_stats.add().CopyFrom(event)

    def op(self, device: int, name: str, op: str, size: int) -> None:
        """An op on a device: its launch, its node, and on a GPU its kernel twice."""
        self.clock += 11
        kind = "CPU:0" if device == 0 else f"GPU:{device - 1}"
        lane = f"{JOB}/device:{kind}"
        event = self.event(lane, name, f"{name} = {op}({name}/input, {name}/weights/read)", 20)
        event.thread_id = self.serial % 8
        event.all_start_nanos = event.all_start_micros * 1000
        allocator = "cpu" if device == 0 else f"GPU_{device - 1}_bfc"
        used = event.memory.add(allocator_name=allocator, allocator_bytes_in_use=size * 40)
        used.allocation_records.add(alloc_micros=self.clock, alloc_bytes=size)
        event.memory_stats.temp_memory_size = size // 2
        output = event.output.add(slot=self.serial % 2)
        tensor = output.tensor_description
        tensor.dtype = 1
        for dim in (32, size // 128, 128 // 4):
            tensor.shape.dim.add(size=dim)
        allocated = tensor.allocation_description
        allocated.requested_bytes, allocated.allocated_bytes = size, size + 256
        allocated.allocator_name, allocated.allocation_id, allocated.has_single_reference = allocator, 1, True
        allocated.ptr = 140_000_000_000_000 + self.serial * 256
        if device:
            gpu = f"/device:GPU:{device - 1}"
            self.again(f"{gpu}/stream:all", self.event(f"{gpu}/stream:14", f"{name}:{op}", f"{name}:{op}", 9))
        self.node(device, name, op, [f"{name}/input", f"{name}/weights/read", "^init"])

    def node(self, device: int, name: str, op: str, inputs: list[str]) -> None:
        if not self.with_graph:
            return
        kind = "CPU:0" if device == 0 else f"GPU:{device - 1}"
        node = self.graphs[device].node.add(name=name, op=op, input=inputs, device=f"{JOB}/device:{kind}")
        node.attr["T"].type = 1
        node.attr["_class"].list.s.append(f"loc:@{name}/weights".encode())
        node.attr["data_format"].s = b"NHWC"
        node.attr["strides"].list.i.extend((1, 1, 1, 1))
        shape = node.attr["_output_shapes"].list.shape.add()
        for size in (32, 7, 7, 64):
            shape.dim.add(size=size)

    def copy(self, device: int, name: str, direction: str, size: int) -> None:
        """A copy: its two rows, and the _Send and _Recv."""
        self.clock += 3
        gpu = f"/device:GPU:{device - 1}"
        memory = "Pageable to Device" if direction == "HtoD" else "Device to Pageable"
        edge = f"edge_{len(name)}_{name}"  # the same in every run of the graph, as its number is the graph's
        label = f"MEMCPY{direction} {size} bytes ({memory})"
        self.again(f"{gpu}/memcpy", self.event(f"{gpu}/stream:15", f"{edge}:MEMCPY{direction}", label, 6))
        if not self.with_graph:
            return
        ends = (0, device) if direction == "HtoD" else (device, 0)
        for end, op in zip(ends, ("_Send", "_Recv"), strict=True):
            node = self.graphs[end].node.add(name=f"{name}/_{len(name)}{op}", op=op)
            node.attr["tensor_name"].s = edge.encode()
            node.attr["T"].type = 1
            node.attr["send_device"].s = f"{JOB}/device:CPU:0".encode()
            node.attr["recv_device"].s = f"{JOB}/device:GPU:{device - 1}".encode()
            node.attr["send_device_incarnation"].i = 1
            node.attr["client_terminated"].b = False

    def layer(self, number: int) -> None:
        for tower in (1, 2):
            name = f"tower_{tower - 1}/block_{number // 16}/layer_{number}"
            self.op(0, f"{name}/weights", "VariableV2", 4 * 1024 * (1 + number % 64))
            self.copy(tower, f"{name}/weights/read", "HtoD", 4 * 1024 * (1 + number % 64))
            for op in OPS:
                self.op(tower, f"{name}/{op}_{number}", op, 4096 * (1 + number % 512))
            self.copy(tower, f"gradients/{name}/AddN", "DtoH", 4 * 1024 * (1 + number % 64))


def make_step(layers: int, different: int = 1 << 30) -> Any:
    """Return a RunMetadata with 58 events per layer, and 24 nodes for each of the different layers.

    Args:
        layers: How many layers run.
        different: After so many, the same layers run again, as in several steps of one graph.
    """
    step = Step()
    for number in range(layers):
        step.with_graph = number < different
        step.layer(number % different)
    for graph in step.graphs:
        graph.versions.producer = 1395
    return step.message


def unusual(text: str) -> str:
    """Return the same text in legal ways that protobuf does not write: separators, comments, tabs, other quotes."""
    changes: tuple[Callable[[str], str], ...] = (
        lambda line: line + ";" if line[-1:] not in ("", "{") else line,
        lambda line: line + "  # comment",
        lambda line: "\t" + line,
        lambda line: line.replace(" {", ": {"),
        lambda line: line if "'" in line else line.replace('"', "'"),
    )
    return "\n".join(changes[i % 5](line) for i, line in enumerate(text.split("\n")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--events", action="store_true", help="instead, a binary of a million events")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 25, 120], help="megabytes of text")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.events:
        (options.folder / "step_1m_events.pb").write_bytes(make_step(17_242, different=300).SerializeToString())
        return
    for size in options.sizes:
        message = make_step(max(1, round(size * 1e6 / TEXT_BYTES_PER_LAYER)))
        text = str(message)
        (options.folder / f"step_{size}mb.pbtxt").write_text(text)
        (options.folder / f"step_{size}mb_unusual.pbtxt").write_text(unusual(text))
        (options.folder / f"step_{size}mb.pb").write_bytes(message.SerializeToString())
        events = sum(len(lane.node_stats) for lane in message.step_stats.dev_stats)
        print(f"step_{size}mb: {len(text) / 1e6:.1f} MB of text, {events:,} events")


if __name__ == "__main__":
    main()
