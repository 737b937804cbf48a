"""The edges that cross devices: each Send / Recv pair, what it carries, and for whom."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from tfplace.analyze import ops
from tfplace.analyze.dataflow import Dataflow
from tfplace.model.trace import Trace


@dataclass(frozen=True)
class Pair:
    """One Send / Recv pair.

    Attributes:
        send: The `_Send` or `_HostSend` node.
        recv: The `_Recv` or `_HostRecv` node.
        edge_name: Their tensor_name.
        direction: H2D, D2H, D2D, P2P or H2H: by the memory at both ends, not by the devices alone.
        src_device, dst_device: Devices whose memory is read and written; null unknown.
        producer, slot: Node output that is sent; null where the graph lacks it.
        consumers: Nodes that read the `_Recv`; for a control edge, those that wait for it.
        is_control: Carries no data.
    """

    send: int
    recv: int
    edge_name: str
    direction: str
    src_device: int | None
    dst_device: int | None
    producer: int | None
    slot: int | None
    consumers: tuple[int, ...]
    is_control: bool


class HostDevices:
    """The host device of each task, for ends that sit in host memory beside an accelerator."""

    def __init__(self, trace: Trace) -> None:
        devices = trace.devices.astype({"task": "object"})
        hosts = devices[devices["role"] == "host"]
        tasks = [None if pd.isna(task) else str(task) for task in hosts["task"].tolist()]
        self._by_task: dict[str | None, int] = {}
        for task, device in zip(tasks, hosts["device_id"].tolist(), strict=True):
            self._by_task.setdefault(task, device)
        self._task: dict[int, str | None] = {
            device: None if pd.isna(task) else str(task)
            for device, task in zip(devices["device_id"].tolist(), devices["task"].tolist(), strict=True)
        }

    def beside(self, device: int | None) -> int | None:
        """Return the host device of the same task; the only host there is where the task is unknown."""
        if device is None:
            return None
        task = self._task.get(device)
        if task in self._by_task:
            return self._by_task[task]
        return next(iter(self._by_task.values())) if len(self._by_task) == 1 else None


def direction_of(src_on_host: bool, dst_on_host: bool, same_device: bool) -> str:
    """Name the way a value goes, from where its two ends sit."""
    if src_on_host:
        return "H2H" if dst_on_host else "H2D"
    if dst_on_host:
        return "D2H"
    return "D2D" if same_device else "P2P"


def _is_control(flow: Dataflow, producer: int | None, consumers: tuple[int, ...]) -> bool:
    """A control edge crosses as a Const of no elements, read by an Identity that only holds others back.

    Source: graph_partition.cc, AddControlTrigger / AddDummyConst.
    """
    if producer is None or flow.op[producer] != "Const" or flow.value_bytes(producer, 0) != 0:
        return False
    return all(flow.op[c] == "Identity" and not flow.outputs(c) for c in consumers)


def _control_consumers(flow: Dataflow, consumers: tuple[int, ...]) -> tuple[int, ...]:
    waiting: dict[int, None] = {}
    for consumer in consumers:
        waiting.update((node, None) for node in flow.control_outputs(consumer))
    return tuple(waiting) or consumers


def find_pairs(flow: Dataflow, hosts: HostDevices) -> list[Pair]:
    """Return every complete Send / Recv pair, by send node; lone halves are in `flow.unpaired`."""
    return [_describe(flow, hosts, send, flow.recv_of[send]) for send in sorted(flow.recv_of)]


def _describe(flow: Dataflow, hosts: HostDevices, send: int, recv: int) -> Pair:
    src = flow.device[send] if flow.device[send] >= 0 else None
    dst = flow.device[recv] if flow.device[recv] >= 0 else None
    src_on_host = flow.host_end(send)
    dst_on_host = flow.host_end(recv)
    inputs = flow.inputs(send)
    producer, slot = (inputs[0][0], inputs[0][1]) if inputs else (None, None)
    consumers = tuple(dict.fromkeys(consumer for consumer, _, _ in flow.outputs(recv)))
    is_control = _is_control(flow, producer, consumers)
    if is_control:
        producer = next(iter(flow.control_inputs(producer)), None) if producer is not None else None
        slot, consumers = None, _control_consumers(flow, consumers)
    if src_on_host and src is not None and flow.on_device[send]:
        src = hosts.beside(src)
    if dst_on_host and dst is not None and flow.on_device[recv]:
        dst = hosts.beside(dst)
    return Pair(
        send=send,
        recv=recv,
        edge_name=str(flow.attrs[send].get("tensor_name", "")),
        direction=direction_of(src_on_host, dst_on_host, src == dst),
        src_device=src,
        dst_device=dst,
        producer=producer,
        slot=slot,
        consumers=consumers,
        is_control=is_control,
    )


def is_fetch(flow: Dataflow, consumers: tuple[int, ...]) -> bool:
    """Tell whether a value only goes to the caller: `_Retval`, or a TF 1.x client-terminated `_Send`."""
    if not consumers:
        return False
    return all(
        flow.op[c] in ops.FETCHES or (flow.is_send(c) and bool(flow.attrs[c].get("client_terminated")))
        for c in consumers
    )
