"""Traces that others recorded on real GPUs, read in place: copies counted independently, edges, nodes."""

import json

import pytest

from tests.builders import rows
from tests.conftest import RECORDED
from tfplace.read.load import load_trace

FILES = sorted(path.name for path in RECORDED.glob("rm_*"))
DERIVED = sorted(path.name for path in RECORDED.glob("derived_*"))

pytestmark = pytest.mark.usefixtures("recorded")


@pytest.fixture(scope="module")
def trace_of():
    """Return a function from a file's name to its Trace; each is read once."""
    known = {}

    def read(name):
        if name not in known:
            known[name] = load_trace([str(RECORDED / name)])
        return known[name]

    return read


def tally(copies):
    found = {}
    for direction, size in rows(copies, "direction", "num_bytes"):
        count, total = found.get(direction, (0, 0))
        found[direction] = (count + 1, total + size)
    return found


def send_names(trace):
    sends = trace.nodes[trace.nodes["op"].isin(["_Send", "_HostSend"])]
    return {attrs.get("tensor_name") for attrs in sends["attrs"]}


@pytest.mark.parametrize("name", FILES)
def test_copies_equal_an_independent_count(name, trace_of, recorded):
    expected = json.loads((recorded / "EXPECTED.json").read_text())[name]
    found = tally(trace_of(name).copies)
    assert set(found) <= {"H2D", "D2H", "D2D", "P2P"}
    for direction in ("H2D", "D2H"):
        assert found.get(direction, (0, 0)) == (expected[direction]["count"], expected[direction]["bytes"])
    within, between = found.get("D2D", (0, 0)), found.get("P2P", (0, 0))
    labelled = [expected["D2D"][key] + expected["P2P"][key] for key in ("count", "bytes")]
    assert [within[0] + between[0], within[1] + between[1]] == labelled
    assert trace_of(name).copies["edge_name"].nunique() == expected["edges"]


def test_every_copy_with_an_edge_name_has_its_send(trace_of):
    matched = total = files = 0
    for name in FILES:
        trace = trace_of(name)
        edges = trace.copies["edge_name"].dropna()
        if trace.has_graphs and len(edges):
            files += 1
            total += len(edges)
            matched += int(edges.isin(send_names(trace)).sum())
    assert (files, matched, total) == (7, 158, 158)


@pytest.mark.parametrize("name", ["rm_json_p5000x2_g2g.json", "rm_json_v100x2_g2g_nvlink.json"])
def test_copies_between_two_gpus_are_p2p(name, trace_of):
    assert tally(trace_of(name).copies)["P2P"] == (2, 2_147_483_648)
    assert "D2D" not in tally(trace_of(name).copies)


@pytest.mark.parametrize("name", FILES)
def test_every_run_of_a_node_meets_its_node(name, trace_of):
    trace = trace_of(name)
    runs = trace.events[(trace.events["kind"] == "op") & (trace.events["name"] != "_SOURCE")]
    assert runs["node_id"].notna().all()
    nodes = trace.nodes.loc[runs["node_id"].astype("int64")]
    assert nodes["name"].tolist() == runs["name"].tolist()
    assert nodes["device_id"].tolist() == runs["device_id"].tolist()


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("rm_text_tf1_")])
def test_nodes_are_inferred_where_there_are_no_graphs(name, trace_of):
    trace = trace_of(name)
    assert not trace.has_graphs
    assert set(trace.nodes["graph"]) == {"inferred"}
    runs = trace.events[(trace.events["kind"] == "op") & (trace.events["name"] != "_SOURCE")]
    assert len(trace.nodes) == len(runs[["device_id", "name"]].drop_duplicates())
    assert trace.nodes["op"].notna().all()
    assert len(trace.edges) > len(trace.nodes)
    assert {"no-partition-graphs", "inferred-nodes"} <= {note.slug for note in trace.notes}
    assert trace.tf_era == "TF1"


@pytest.mark.parametrize("name", FILES)
def test_times_are_in_order_and_ids_are_row_numbers(name, trace_of):
    trace = trace_of(name)
    assert (trace.events["end_ns"] >= trace.events["start_ns"]).all()
    assert trace.events["start_ns"].is_monotonic_increasing
    assert trace.events["start_ns"].min() == 0
    assert trace.events["end_ns"].max() < 60 * 10**9
    for table, column in (("events", "event_id"), ("nodes", "node_id"), ("edges", "edge_id"), ("devices", "device_id")):
        assert trace.table(table)[column].tolist() == list(range(len(trace.table(table))))


def test_an_encoding_changes_nothing(trace_of):
    assert DERIVED
    for name in DERIVED:
        stem = name.removeprefix("derived_").partition(".")[0]
        original = next(other for other in FILES if stem in other)
        for table in ("devices", "nodes", "edges", "outputs", "events", "copies", "steps"):
            assert trace_of(name).table(table).equals(trace_of(original).table(table)), (name, table)
