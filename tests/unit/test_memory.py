"""Memory in use: what allocators told after the runs of ops, as a table and as counters."""

import io
from dataclasses import replace

import numpy as np
import pytest

from tests.builders import CPU0, GPU0, GPU1, lane, load, op, run_metadata
from tests.timeline_checker import check_timeline
from tests.timeline_samples import timeline_of
from tfplace.model.rows import python_rows
from tfplace.model.select import select_steps
from tfplace.read.load import load_trace
from tfplace.read.run_metadata import raw_from_bytes
from tfplace.read.tables.normalize import normalize
from tfplace.report.timeline import counters
from tfplace.report.timeline.chrome import write_chrome

TWO_GPUS = run_metadata(
    dev_stats=[
        lane(CPU0, op("c", "Const", start=0, duration=1, memory={"cpu": 64})),
        lane(
            GPU0,
            op("a", "MatMul", start=10, duration=5, memory={"GPU_0_bfc": 1000, "cuda_host_bfc": 256}),
            op("b", "MatMul", start=20, duration=5, memory={"GPU_0_bfc": 3000}),
            op("e", "MatMul", start=30, duration=5, memory={"GPU_0_bfc": 0}),  # not recorded
            op("f", "MatMul", start=40, duration=5, memory={"GPU_0_bfc": 3000}),
        ),
        lane(GPU1, op("d", "MatMul", start=15, duration=5, memory={"gpu_bfc": 500})),
    ]
)


def memory(trace):
    """Return (op, device, allocator, bytes) of all rows."""
    names = dict(zip(trace.devices["device_id"], trace.devices["name"], strict=True))
    of_event = trace.events["name"].tolist()
    return [
        (of_event[event], names.get(device), allocator, in_use)
        for event, device, allocator, in_use in python_rows(trace.memory)
    ]


def drawn_counters(trace):
    """Return {(process, name): [(us, value)]}."""
    out = io.BytesIO()
    write_chrome(timeline_of(trace), out)
    page = check_timeline(out.getvalue())
    found = {}
    for event in page.of("C"):
        (value,) = event["args"].values()
        key = page.processes[event["pid"]], event["name"]
        found.setdefault(key, []).append((float(event["ts"]), float(value)))
    return found


def test_each_allocator_is_told_apart_and_belongs_to_its_gpu_or_to_the_host():
    assert memory(load(TWO_GPUS)) == [
        ("c", None, "cpu", 64),
        ("a", "GPU:0", "GPU_0_bfc", 1000),
        ("a", None, "cuda_host_bfc", 256),
        ("d", "GPU:1", "gpu_bfc", 500),
        ("b", "GPU:0", "GPU_0_bfc", 3000),
        ("f", "GPU:0", "GPU_0_bfc", 3000),
    ]


def test_the_counter_changes_where_an_op_ended_and_only_there():
    found = drawn_counters(load(TWO_GPUS))
    assert found["GPU:0 (device)", "memory in use"] == [(15, 1000), (25, 3000)]
    assert found["GPU:1 (device)", "memory in use"] == [(20, 500)]
    assert ("CPU:0 (host)", "memory in use") not in found


def test_a_simulated_gpu_has_no_memory_of_its_own():
    trace = replace(load(TWO_GPUS), simulated="1 x 16 GB")
    assert not any(name == "memory in use" for _, name in drawn_counters(trace))


def test_text_and_binary_tell_the_same():
    raws = [raw_from_bytes(data) for data in (TWO_GPUS.SerializeToString(), str(TWO_GPUS).encode())]
    first, second = (memory(normalize([raw])) for raw in raws)
    assert first == second != []


def test_of_several_steps_each_keeps_its_own():
    trace = normalize([raw_from_bytes(TWO_GPUS.SerializeToString()) for _ in range(2)])
    assert len(trace.memory) == 12
    assert sorted(memory(select_steps(trace, [2])), key=str) == sorted(memory(load(TWO_GPUS)), key=str)


def test_of_many_moments_the_peaks_stay(monkeypatch):
    """A hundred values in ten parts: of each ten the highest and the last."""
    monkeypatch.setattr(counters, "_VALUES", 20)
    value = np.arange(100) % 10 * 10 + 1
    value[55] = 999
    kept = counters._highest_and_last(np.arange(100), value)
    assert kept.tolist() == [9, 19, 29, 39, 49, 55, 59, 69, 79, 89, 99]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("rm_text_tf1_inception_inference.pbtxt", 910),
        ("rm_text_tf1_mnist.pbtxt", 149),
        ("rm_text_tf1_resnet.pbtxt", 1863),
    ],
)
def test_traces_by_others_tell_the_memory_of_their_gpu(recorded, name, told):
    trace = load_trace([str(recorded / name)])
    on_gpu = trace.memory[trace.memory["device_id"].notna()]
    assert set(on_gpu["allocator"]) == {"GPU_0_bfc"}
    assert len(on_gpu) == told
    assert (on_gpu["in_use_bytes"] > 1_000_000).all()
