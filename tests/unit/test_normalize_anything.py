"""Whatever a damaged or odd file holds, normalize gives tables that keep the schema's promises."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import CPU0, GPU0, GPU1, graph, lane, load, node, output, run_metadata, send, stat

INT64 = st.one_of(
    st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), 15_481_878_642_345_949, 19_978_045_970_716_470]),
    st.integers(min_value=1_500_000_000_000_000, max_value=1_500_000_000_001_000),
    st.integers(min_value=-(2**63), max_value=2**63 - 1),
)
NAMES = st.one_of(
    st.sampled_from(
        [
            "x",
            "x:MatMul",
            "edge_1_x:MEMCPYHtoD",
            "edge_1_x::MemcpyDtoD",
            "x/_1:_Send#id=1,device=" + GPU0 + "#::edge_1_x::MemcpyDtoH",
            "RecvTensor",
            "_SOURCE",
            "",
        ]
    ),
    st.text(max_size=12),
)
LABELS = st.one_of(
    st.sampled_from(
        [
            "x = MatMul(x, y/_1, ^_recv_q_0, z:7)",
            "MEMCPYDtoH 400 bytes (Device to Pinned)",
            "MemcpyP2P kind_src:device kind_dst:device size:4 dest:1 async:1",
            f"[1.2MB] edge_3_x from {CPU0} to {GPU1}",
            "",
        ]
    ),
    st.text(max_size=20),
)
LANES = st.one_of(
    st.sampled_from(
        [
            CPU0,
            GPU0,
            GPU1,
            "/host:CPU",
            "/device:GPU:0/stream:all",
            "/device:GPU:0/stream:1",
            "/device:GPU:0/stream:",
            "/device:GPU:0/memcpy",
            "/device:GPU:0/sync",
            "/gpu:1 (Tesla)/context#0/stream#2:MemcpyHtoD",
            "/job:worker/replica:0/task:3/device:GPU:0/stream:2",
        ]
    ),
    st.text(max_size=8),
)


@st.composite
def rows_of_stats(draw):
    row = stat(draw(NAMES), 0, 0, draw(LABELS), thread=draw(st.integers(0, 2)))
    for field in (
        "all_start_micros",
        "all_start_nanos",
        "all_end_rel_micros",
        "all_end_rel_nanos",
        "op_end_rel_micros",
        "scheduled_micros",
        "scheduled_nanos",
    ):
        setattr(row, field, draw(INT64))
    if draw(st.booleans()):
        made = output(draw(st.integers(0, 2)), draw(st.sampled_from(["float32", "string"])), "[2,?]", draw(INT64))
        made.tensor_description.dtype = draw(st.sampled_from([0, 1, 7, 20, 101, 9999]))
        row.output.append(made)
    return row


PARTITIONS = [
    graph(CPU0, node("x", "_Arg"), send("edge_1_x", "x", CPU0, GPU0, name="x/_1")),
    graph(GPU0, node("x", "MatMul"), node("y", "Identity", "x", "^missing")),
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(LANES, st.lists(rows_of_stats(), max_size=4)), max_size=4),
    st.booleans(),
    st.integers(min_value=1, max_value=2),
)
def test_any_step_stats_become_sound_tables(lanes, with_graphs, files):
    message = run_metadata(PARTITIONS if with_graphs else [], [lane(name, *stats) for name, stats in lanes])
    trace = load(*[message] * files)
    events, copies = trace.events, trace.copies
    assert events["event_id"].tolist() == list(range(len(events)))
    assert (events["end_ns"] >= events["start_ns"]).all()
    assert events["start_ns"].is_monotonic_increasing
    assert set(events["device_id"].dropna()) <= set(trace.devices["device_id"])
    assert set(events["node_id"].dropna()) <= set(trace.nodes["node_id"])
    assert set(events["step_id"].dropna()) <= set(trace.steps["step_id"])
    assert copies["event_id"].tolist() == events.loc[events["kind"] == "memcpy", "event_id"].tolist()
    assert set(trace.edges["src_node_id"]) | set(trace.edges["dst_node_id"]) <= set(trace.nodes["node_id"])
    assert not trace.outputs.duplicated(["node_id", "slot"]).any()
    assert not trace.devices["name"].duplicated().any()
    recorded = sum(len(stats) for _, stats in lanes) * files
    assert len(events) <= recorded
