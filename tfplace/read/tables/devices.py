"""Which devices a trace speaks of, under one id each however they are spelled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tfplace.errors import UsageError
from tfplace.model import schema
from tfplace.model.trace import Note
from tfplace.names import KINDS, DeviceName, parse_device, printable

Key = tuple[str | None, int | None, int | None, str, int | None]  # job, replica, task, type, ordinal


def _key(name: DeviceName) -> Key:
    return name.job, name.replica, name.task_index, name.type or "", name.ordinal


def _fits(partial: Key, whole: Key) -> bool:
    """Tell whether every part that `partial` has is the same in `whole`."""
    return all(mine is None or mine == other for mine, other in zip(partial, whole, strict=True))


@dataclass(frozen=True)
class Devices:
    """The devices table and the way into it.

    Attributes:
        table: `schema.DEVICES`.
        notes: What could not be told apart.
    """

    table: pd.DataFrame
    notes: tuple[Note, ...]
    _ids: dict[Key, int]
    _host: int | None

    def find(self, name: str | None) -> int | None:
        """Return the device id of a device or lane name; null where it names none of these devices."""
        if not name:
            return None
        parsed = parse_device(name)
        if parsed.host_threads:
            return self._host
        if parsed.type is None:
            return None
        found = self._ids.get(_key(parsed))
        if found is None and not parsed.is_full:
            fits = {number for key, number in self._ids.items() if _fits(_key(parsed), key)}
            found = fits.pop() if len(fits) == 1 else None
        return found

    def gpu_beside(self, device: int, number: int | None) -> int:
        """Return the GPU of that number in the task of a device, the device itself if it fits; -1 for none.

        Args:
            device: Device id.
            number: As `labels.gpu_of_allocator` has it: -1 for the GPU without a number, null for none.
        """
        if number is None or device < 0:
            return -1
        gpus = self.table[self.table["kind"] == "GPU"]
        if number >= 0:
            gpus = gpus[gpus["ordinal"] == number]
        found = gpus["device_id"].tolist()
        if device in found:
            return device
        task = self.table["task"].fillna("")
        found = [gpu for gpu in found if task[gpu] == task[device]]
        return found[0] if len(found) == 1 else -1

    def with_accelerators(self, wanted: str | None) -> pd.DataFrame:
        """Return the table in which the named devices have role 'device' too.

        Args:
            wanted: 'CPU:1', '/device:CPU:1', a full name, or several of them with commas; null: none.

        Raises:
            UsageError: One of them is not a device of this trace.
        """
        if not wanted:
            return self.table
        chosen = self.table["name"].isna()  # all false
        for text in filter(None, (part.strip() for part in wanted.split(","))):
            chosen |= self._matches(text)
        table: pd.DataFrame = self.table.copy()
        table.loc[chosen, "role"] = "device"
        return table

    def _matches(self, text: str) -> pd.Series:
        hit = (self.table["name"].str.lower() == text.lower()).fillna(False).astype(bool)
        parsed = parse_device(text)
        if not hit.any() and parsed.type and parsed.ordinal is not None and not parsed.lane:
            keys = [_key(parse_device(name)) for name in self.table["full_name"].tolist()]
            hit = pd.Series([_fits(_key(parsed), key) for key in keys], index=self.table.index, dtype=bool)
        if not hit.any():
            known = ", ".join(printable(name, 80) for name in self.table["name"].tolist()) or "none"
            raise UsageError(
                f"The trace has no device '{printable(text, 80)}'.", f"Give --accelerator one of its devices: {known}."
            )
        return hit


def find_devices(lanes: Iterable[str], names: Iterable[str | None], details: Sequence[dict[str, Any]] = ()) -> Devices:
    """Return the devices of a trace.

    Args:
        lanes: Device names of step_stats, lanes included: '/gpu:0/stream:13', '/host:CPU'.
        names: Device names from anywhere else: nodes, `_Send` and `_Recv`.
        details: What capture stored of each: {'name', 'model', 'memory_bytes'}.

    A lane that names no task ('/device:GPU:0/stream:all') is that of the one task that has such a device. Where
    several tasks have one, the lane cannot be told apart: it gets a device without a task, and a note.
    """
    lane_names = [parse_device(name) for name in dict.fromkeys(lanes)]
    spelled: dict[Key, str] = {}
    models: dict[Key, str] = {}
    for text in dict.fromkeys([*filter(None, names), *lanes]):
        parsed = parse_device(text)
        if parsed.type is None or parsed.host_threads:
            continue
        plain = text if not parsed.lane and not parsed.model else f"{parsed.task or ''}/device:{parsed.short}"
        spelled.setdefault(_key(parsed), plain)
        if parsed.model:
            models.setdefault(_key(parsed), parsed.model)
    owners, aliases, unclear = _group(list(spelled))
    has_threads = any(name.host_threads for name in lane_names)
    hosts = [key for key in owners if key[3] == "CPU" and key[4] == min(k[4] or 0 for k in owners if k[3] == "CPU")]
    if has_threads and not hosts:
        hosts = [_host_key(owners)]
        owners.append(hosts[0])
        spelled[hosts[0]] = "/host:CPU"
    owners.sort(key=_order)
    ids = {key: number for number, key in enumerate(owners)}
    ids |= {key: ids[owner] for key, owner in aliases.items()}
    models = {owners[ids[key]]: model for key, model in models.items()}
    table = _table(owners, spelled, models)
    lost = sum(1 for name in lane_names if _key(name) in unclear)
    notes = (
        [
            Note(
                "lanes-without-task",
                f"{lost} lanes name no task while several tasks have such a device; they stand under a device of "
                "their own.",
                lost,
            )
        ]
        if lost
        else []
    )
    devices = Devices(table, tuple(notes), ids, ids[hosts[0]] if len(hosts) == 1 else None)
    for detail in details:
        number = devices.find(str(detail.get("name", "")))
        if number is not None:
            _add_detail(table, number, detail)
    return devices


def _add_detail(table: pd.DataFrame, number: int, detail: dict[str, Any]) -> None:
    memory = detail.get("memory_bytes")
    if isinstance(memory, int) and 0 < memory < 1 << 62:
        table.loc[number, "memory_bytes"] = memory
    if detail.get("model"):
        table.loc[number, "model"] = str(detail["model"])


def _host_key(owners: Sequence[Key]) -> Key:
    """Return the key of the host of '/host:CPU' in a trace that names no CPU device."""
    tasks = {key[:3] for key in owners}
    job, replica, task = next(iter(tasks)) if len(tasks) == 1 else (None, None, None)
    return job, replica, task, "CPU", 0


def _group(keys: Sequence[Key]) -> tuple[list[Key], dict[Key, Key], set[Key]]:
    """Return (keys that are devices, {partial key: its device}, partial keys that fit several devices)."""
    owners: list[Key] = []
    aliases: dict[Key, Key] = {}
    unclear: set[Key] = set()
    like: dict[tuple[str, int | None], list[Key]] = {}
    for key in keys:
        like.setdefault((key[3], key[4]), []).append(key)
    for key in keys:
        if None not in key:
            owners.append(key)
            continue
        near = like[key[3], key[4]] if key[4] is not None else [k for k in keys if k[3] == key[3]]
        whole = [other for other in near if other != key and _fits(key, other)]
        whole = [other for other in whole if None not in other] or whole
        if len(whole) == 1:
            aliases[key] = whole[0]
        else:
            owners.append(key)
            if whole:
                unclear.add(key)
    whole_names = {key: _follow(aliases, key) for key in aliases}
    return owners, whole_names, unclear


def _follow(aliases: dict[Key, Key], key: Key) -> Key:
    while key in aliases:
        key = aliases[key]
    return key


def _order(key: Key) -> tuple[Any, ...]:
    job, replica, task, kind, ordinal = key
    rank = KINDS.index(kind) if kind in KINDS else len(KINDS)
    return job or "", replica or 0, task or 0, rank, kind, -1 if ordinal is None else ordinal


def _short_names(owners: Sequence[Key]) -> list[str]:
    tasks = {key[:3] for key in owners if key[:3] != (None, None, None)}
    replicas = {key[1] for key in owners if key[1] is not None}
    names = []
    for job, replica, task, kind, ordinal in owners:
        short = kind if ordinal is None else f"{kind}:{ordinal}"
        parts = [job, str(replica) if len(replicas) > 1 else None, None if task is None else str(task)]
        before = "/".join(part for part in parts if part is not None) if len(tasks) > 1 else ""
        names.append(f"{before}/{short}" if before else short)
    return names


def _table(owners: Sequence[Key], spelled: dict[Key, str], models: dict[Key, str]) -> pd.DataFrame:
    names = [DeviceName(job=k[0], replica=k[1], task_index=k[2], type=k[3], ordinal=k[4]) for k in owners]
    frame = pd.DataFrame(
        {
            "device_id": range(len(owners)),
            "name": pd.Series(_short_names(owners), dtype=schema.TEXT),
            "full_name": pd.Series([spelled[key] for key in owners], dtype=schema.TEXT),
            "task": pd.Series([name.task for name in names], dtype=schema.TEXT),
            "kind": pd.Series([name.kind for name in names], dtype=schema.TEXT),
            "role": pd.Series([_role(key[3]) for key in owners], dtype=schema.TEXT),
            "ordinal": pd.Series([key[4] for key in owners], dtype=schema.REF),
            "model": pd.Series([models.get(key) for key in owners], dtype=schema.TEXT),
            "memory_bytes": pd.Series([None] * len(owners), dtype=schema.REF),
        }
    )
    return schema.conform("devices", frame)


def _role(kind: str) -> str:
    # XLA_GPU stands for the same hardware as GPU; TPU_SYSTEM is a host-side device
    return "device" if kind in ("GPU", "TPU", "XLA_GPU") else "host"
