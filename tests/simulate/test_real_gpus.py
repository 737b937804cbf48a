"""Steps recorded on real GPUs, rebuilt from their own graphs: the same edges, copies and ops on simulated GPUs.

Recorded by TensorFlow 1.0 to 2.0 without graph rewriting, so it is off here too: today's grappler would remove some
of the copies.
"""

import functools
import json

import pytest
from simulated_runs import begin, finish

RECORDED = [
    "rm_json_p5000_c2g_45.json",
    "rm_json_p5000x2_g2g.json",
    "rm_json_v100_pinned_1g.json",
    "rm_json_v100_unpinned_1g.json",
    "rm_json_v100x2_c2g.json",
    "rm_json_v100x2_g2g_nvlink.json",
    "rm_text_gpu0_dynstitch.pbtxt",
]
# (edges, copies) of each file, counted independently when the files were collected.
SIZES = [(90, 90), (4, 4), (2, 2), (2, 2), (36, 36), (4, 4), (21, 20)]


@functools.cache
def compare(path):
    out, _ = finish(begin("rebuild.py", path, 2))
    return json.loads(out.splitlines()[-1])


@pytest.fixture(params=RECORDED)
def name(request, recorded_traces):
    if not (recorded_traces / request.param).exists():
        pytest.skip(f"no {request.param}")
    return request.param


@pytest.fixture
def result(name, recorded_traces):
    return compare(str(recorded_traces / name))


def test_edges_producers_ends_and_send_kinds_are_equal(result):
    assert result["simulated"]["edges"] == result["recorded"]["edges"]


def test_copies_are_equal_one_by_one(result):
    """By producer, GPU that the copy is booked on, direction and bytes."""
    assert result["simulated"]["copies"] == result["recorded"]["copies"]


def test_nothing_was_left_out(name, result):
    recorded = result["recorded"]
    assert (len(recorded["edges"]), len(recorded["copies"])) == SIZES[RECORDED.index(name)]


def test_op_counts_of_each_device_are_equal(name, result):
    simulated, recorded = dict(result["simulated"]["ops"]), dict(result["recorded"]["ops"])
    if name == "rm_text_gpu0_dynstitch.pbtxt":
        # TensorFlow 1.0 handed a fetch to the client by a _Send; since 1.5 it is a _Retval.
        recorded["CPU:0 _Retval"] = recorded.pop("CPU:0 _Send")
    assert simulated == recorded


def test_the_device_counted_the_copies_that_the_trace_shows(result):
    totals = {}
    for _, _, direction, num_bytes in result["simulated"]["copies"]:
        count, total = totals.get(direction, (0, 0))
        totals[direction] = (count + 1, total + num_bytes)
    counted = dict(result["counted"])
    if "P2P" in counted:  # Between two GPUs; the records call it D2D.
        counted["D2D"] = counted.pop("P2P")
    assert {name: list(total) for name, total in totals.items()} == counted
