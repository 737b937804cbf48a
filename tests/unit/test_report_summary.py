"""Every number of a Report, worked out by hand from tests/report_samples.py."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from tests import report_samples as samples
from tfplace.model import schema
from tfplace.report.summary import parse_shape, summarize


def summary(analysis=None, outcomes=None):
    return summarize(analysis or samples.analysis(), outcomes or samples.outcomes())


def transfer(report, tensor, size=None):
    [row] = [t for t in report.transfers if t["tensor"] == tensor and size in (None, t["bytes"])]
    return row


def test_copies_of_one_edge_are_one_row_over_all_steps():
    row = transfer(summary(), "train/w/read:0")
    assert row["edge"] == "edge_1_train/w/read"
    assert (row["bytes"], row["count_per_step"], row["bytes_per_step"], row["copies_seen"]) == (4000, 1, 4000, 2)
    assert row["time_us"] == 2  # 1 us and 3 us
    assert row["exposed_us"] == 1  # half of each
    assert row["start_us"] == 11  # 10 us and 12 us after their steps' starts
    assert (row["producer"], row["producer_op"]) == ("train/w/read", "Identity")
    assert (row["consumers"], row["consumer_ops"]) == (["train/conv"], ["Conv2D"])
    assert (row["category"], row["variable"], row["evidence"]) == ("variable", "train/w", "both")
    assert (row["direction"], row["src_device"], row["dst_device"]) == ("H2D", "CPU:0", "GPU:0")


def test_copies_without_an_edge_are_one_row_per_name_and_size():
    report = summary()
    eight, sixteen = transfer(report, "eval/stitch", 8), transfer(report, "eval/stitch", 16)
    assert (eight["count_per_step"], eight["edge"], eight["evidence"]) == (1, None, "memcpy")  # 2 copies in 2 steps
    assert (sixteen["count_per_step"], sixteen["bytes_per_step"]) == (0.5, 8)


def test_a_pair_without_a_copy_is_send_recv_and_has_no_time():
    row = transfer(summary(), "train/lr:0")
    assert (row["evidence"], row["count_per_step"], row["copies_seen"]) == ("send_recv", 1, 0)
    assert (row["time_us"], row["exposed_us"], row["start_us"]) == (None, None, None)


def test_control_edges_are_not_rows():
    assert "done" not in [t["tensor"] for t in summary().transfers]


def test_transfers_come_by_bytes_per_step_then_name():
    tensors = [t["tensor"] for t in summary().transfers]
    assert tensors[:3] == ["train/grad:0", "train/w/read:0", "_arg_images_0_0:0"]


def test_a_transfer_of_unknown_size_comes_last_with_null():
    frame = samples.transfers()
    frame.loc[frame["tensor_name"] == "train/grad:0", "num_bytes"] = pd.NA
    report = summary(samples.analysis(transfers=frame))
    assert report.transfers[-1]["tensor"] == "train/grad:0"
    assert (report.transfers[-1]["bytes"], report.transfers[-1]["bytes_per_step"]) == (None, None)
    down = report.totals["per_step"]["d2h"]
    assert (down["bytes"], down["unknown_sizes"]) == (16, 1)  # 8 + 8 + 16 over two steps; one gradient per step


def test_totals_count_each_copy_seen_and_no_send_beside_them():
    totals = summary().totals
    assert totals["evidence"] == "memcpy"
    # up in two steps: w 2 x 4000, images 2 x 1200; 1 + 3 + 0.5 + 0.5 us
    assert totals["per_step"]["h2d"] == {"count": 2, "bytes": 5200, "time_us": 2.5, "unknown_sizes": 0}
    # down in two steps: gradient 2 x 4000, 8 + 8 + 16; 2 us + 0.3 us
    assert totals["per_step"]["d2h"] == {"count": 2.5, "bytes": 4016, "time_us": 1.15, "unknown_sizes": 0}
    assert totals["per_step"]["p2p"] == {"count": 0, "bytes": 0, "time_us": 0, "unknown_sizes": 0}
    assert (totals["step_time_us"], totals["gpu_busy_share"], totals["exposed_copy_us"]) == (100, 0.4, 3)


def test_totals_count_sends_where_no_copy_was_seen():
    frame = samples.transfers().assign(evidence="send_recv", start_ns=pd.NA, end_ns=pd.NA)
    report = summary(samples.analysis(transfers=schema.conform("transfers", frame)))
    assert report.totals["evidence"] == "send_recv"
    up = report.totals["per_step"]["h2d"]
    assert (up["count"], up["bytes"], up["time_us"]) == (3, 5204, None)  # w, images and the learning rate


def test_sends_of_a_trace_without_steps_count_once():
    frame = samples.transfers()
    frame = frame[frame["tensor_name"] == "train/w/read:0"].head(1)
    frame = frame.assign(evidence="send_recv", step_id=pd.NA, start_ns=pd.NA, end_ns=pd.NA)
    bare = samples.trace(steps=schema.empty("steps"), events=schema.empty("events"), has_device_times=False)
    report = summary(samples.analysis(bare, transfers=schema.conform("transfers", frame), step_time_ns=None))
    assert report.transfers[0]["count_per_step"] == 1
    assert report.totals["per_step"]["h2d"]["count"] == 1
    assert (report.trace["steps"], report.trace["traced_steps"]) == (0, [])


def test_nothing_seen_is_null_not_zero():
    blind = samples.trace(has_graphs=False)
    report = summary(samples.analysis(blind, transfers=schema.empty("transfers")))
    assert report.totals["evidence"] is None
    assert report.totals["per_step"]["h2d"] == {"count": None, "bytes": None, "time_us": None, "unknown_sizes": None}


def test_a_graph_without_crossing_edges_is_zero_not_null():
    report = summary(samples.analysis(transfers=schema.empty("transfers")))
    assert report.totals["evidence"] == "send_recv"
    assert report.totals["per_step"]["h2d"]["count"] == 0
    assert report.totals["per_step"]["h2d"]["bytes"] == 0


@pytest.mark.parametrize(
    "trace",
    [
        samples.trace(simulated="1 simulated GPU of 16 GB"),
        samples.trace(devices=samples.devices(kind="CPU", model=None)),
        samples.trace(has_device_times=False),
    ],
    ids=["simulated", "CPU plays the accelerator", "no device times"],
)
def test_times_that_are_no_gpus_are_left_out(trace):
    report = summary(samples.analysis(trace))
    assert report.trace["has_gpu_times"] is False
    assert {t["time_us"] for t in report.transfers} == {None}
    assert {t["exposed_us"] for t in report.transfers} == {None}
    assert {t["start_us"] for t in report.transfers} == {None}
    assert report.totals["per_step"]["h2d"]["time_us"] is None
    times = ("step_time_us", "gpu_busy_share", "exposed_copy_us")
    assert [report.totals[key] for key in times] == [None, None, None]
    assert report.totals["per_step"]["h2d"]["bytes"] == 5200  # bytes stay real


def test_a_step_on_the_host_alone_keeps_its_length():
    trace = samples.trace(devices=samples.devices(kind="CPU", role="host", model=None), has_device_times=False)
    report = summary(samples.analysis(trace, transfers=schema.empty("transfers")))
    assert report.totals["step_time_us"] == 100


def test_variables_are_plain_and_by_what_crosses():
    [row] = summary().variables
    assert row["shape"] == [10, 100]
    assert row["destinations"] == ["GPU:0"]
    assert row["read_bytes_by_destination"] == {"GPU:0": 4000}
    assert [set(node) for node in (*row["readers"], *row["writers"])] == [{"node", "op", "device"}] * 2
    assert (row["device"], row["requested_device"], row["dtype"], row["bytes"]) == (
        "CPU:0",
        "/device:CPU:0",
        "float32",
        4000,
    )
    assert (row["verdict"], row["copied_each_step"]) == ("unnecessary", True)
    assert (row["read_bytes_per_step"], row["written_bytes_per_step"], row["source"]) == (4000, 4000, None)
    assert (row["read_by"], row["written_by"]) == (1, 1)


def test_variables_with_nothing_crossing_come_last():
    quiet = samples.variables(variable_id=1, name="a", read_bytes_per_step=0, written_bytes_per_step=0)
    both = schema.conform("variables", pd.concat([quiet, samples.variables()]).assign(variable_id=[0, 1]))
    report = summary(samples.analysis(variables=both))
    assert [v["name"] for v in report.variables] == ["train/w", "a"]


@pytest.mark.parametrize(
    ("text", "shape"),
    [("[32,10]", [32, 10]), ("[]", []), ("[?,10]", [None, 10]), ("[-1]", [None]), (None, None)],
)
def test_shapes_are_lists(text, shape):
    assert parse_shape(text) == shape


def test_placement_counts_ops_and_name_scopes():
    host, gpu = summary().placement
    assert (host["device"], host["nodes"]) == ("CPU:0", 6)
    assert host["ops"]["VariableV2"] == 1
    # scopes at the first depth at which names differ: train/..., eval/..., and nodes without a scope
    assert host["scopes"] == {"train": 4, "(top level)": 2}
    assert gpu["scopes"] == {"train": 2, "eval": 1}


def test_scopes_go_as_deep_as_it_takes_to_differ():
    names = {i: f"model/tower/{'a' if i % 2 else 'b'}/x{i}" for i in range(9)}
    report = summary(samples.analysis(samples.trace(nodes=samples.nodes(names))))
    assert sorted({scope for row in report.placement for scope in row["scopes"]}) == ["model/tower/a", "model/tower/b"]


def test_nodes_without_a_device_are_listed_under_none():
    lost = samples.nodes()
    lost.loc[samples.STITCH, "device_id"] = pd.NA
    report = summary(samples.analysis(samples.trace(nodes=lost)))
    assert [row["device"] for row in report.placement] == ["CPU:0", "GPU:0", None]
    assert report.placement[-1]["nodes"] == 1


def test_trace_facts_name_source_steps_and_accelerator():
    facts = summary().trace
    assert (facts["source"], facts["sources"]) == ("trace.pbtxt", ["trace.pbtxt"])
    assert (facts["steps"], facts["traced_steps"]) == (2, [1, 2])
    assert (facts["accelerators"], facts["cpu_as_accelerator"]) == (["GPU:0"], False)
    assert facts["bus_gbps"] == 12


def test_the_programs_own_step_numbers_are_kept():
    numbered = samples.steps()
    numbered["step_num"] = pd.array([100, 101], dtype="Int64")
    assert summary(samples.analysis(samples.trace(steps=numbered))).trace["traced_steps"] == [100, 101]


def test_notes_of_reading_come_before_those_of_analysis():
    assert [note.slug for note in summary().notes] == ["copies-without-size", "unpaired-transfers"]


def test_findings_come_by_cost_then_bytes_with_unknown_cost_last():
    cheap = samples.finding(title="cheap", cost_ns_per_step=10.0)
    dear = samples.finding(title="dear", cost_ns_per_step=900.0, severity="info")
    big = samples.finding(title="big", cost_ns_per_step=None, bytes_per_step=10)
    small = samples.finding(title="small", cost_ns_per_step=None, bytes_per_step=None)
    report = summary(outcomes=samples.outcomes(small, cheap, big, dear))
    assert [f.title for f in report.findings] == ["dear", "cheap", "big", "small"]


def test_a_report_of_an_empty_trace_says_so():
    empty = samples.trace(
        devices=schema.empty("devices"),
        nodes=schema.empty("nodes"),
        events=schema.empty("events"),
        steps=schema.empty("steps"),
        notes=(),
        has_graphs=False,
        has_times=False,
        has_device_times=False,
    )
    nothing = samples.analysis(
        empty,
        transfers=schema.empty("transfers"),
        variables=schema.empty("variables"),
        step_time_ns=None,
        gpu_busy_share=None,
        exposed_copy_ns=None,
        notes=(),
    )
    report = summarize(nothing, [])
    assert report.verdict == "The trace names no device, so it cannot show what crosses between devices."
    assert set(report.answers.values()) == {"The trace cannot tell: it names no device."}
    assert (report.transfers, report.variables, report.placement, report.devices) == ([], [], [], [])


def test_rules_keep_their_order_and_reasons():
    report = summary()
    assert [(o.rule, o.outcome) for o in report.rules][2:] == [
        ("xla-hides-placement", "skipped"),
        ("ping-pong", "failed"),
    ]


def test_verdict_is_the_first_finding_with_its_cost():
    assert summary().verdict == (
        "1 variable (4.0 kB) is copied from CPU:0 to GPU:0 in every step, less than 0.001 ms a step (estimate)."
    )


def test_verdict_repeats_no_cost_that_the_title_names():
    timed = samples.finding(title="20 copies cost 0.4 ms a step.", cost_ns_per_step=4e5)
    assert summary(outcomes=samples.outcomes(timed)).verdict == "20 copies cost 0.4 ms a step."


def test_a_finding_on_capture_is_no_verdict():
    capture = samples.finding(rule="capture-quality", title="No graphs", cost_ns_per_step=None)
    verdict = summary(outcomes=samples.outcomes(capture)).verdict
    # 2 up and 2.5 down, 5200 + 4016 bytes; 2 of the 4 rules did not look
    assert verdict == "Nothing to change was found: 4.5 copies, 9.2 kB a step; 2 rules of 4 could not look."


def test_verdict_of_a_host_only_step():
    trace = samples.trace(devices=samples.devices(kind="CPU", role="host", model=None))
    report = summary(samples.analysis(trace, transfers=schema.empty("transfers")), [replace(samples.outcomes()[1])])
    assert report.verdict == "The step ran on the host alone (CPU:0 and CPU:1): there is no accelerator to copy to."


def test_verdict_where_nothing_can_be_seen():
    blind = samples.analysis(samples.trace(has_graphs=False), transfers=schema.empty("transfers"))
    assert summarize(blind, []).verdict == (
        "What crosses cannot be seen: the trace has neither partition graphs nor copies."
    )


def weights_and_gradients(**back):
    up = samples.finding(
        title="2 variables (4.0 MB) on CPU:0 are copied to GPU:0 in every step: 4.0 MB a step.",
        bytes_per_step=4_000_000,
        cost_ns_per_step=333_333.0,
        subjects=("a", "b"),
    )
    down = {"rule": "update-on-cpu", "title": "Gradients of 2 variables travel to CPU:0", **back}
    return samples.outcomes(up, replace(up, **down))


def test_weights_up_and_gradients_back_are_one_sentence():
    assert summary(outcomes=weights_and_gradients()).verdict == (
        "2 variables (4.0 MB) on CPU:0 are copied to GPU:0 in every step, and their gradients back: "
        "8.0 MB over the bus, about 0.667 ms a step (estimate)."
    )


def test_gradients_of_some_weights_are_counted():
    verdict = summary(outcomes=weights_and_gradients(subjects=("b", "c"))).verdict
    assert "and the gradients of 1 of them back" in verdict


def test_gradients_of_other_variables_do_not_join_the_verdict():
    assert "back" not in summary(outcomes=weights_and_gradients(subjects=("c",))).verdict


def test_measured_and_estimated_costs_are_not_added_up():
    verdict = summary(outcomes=weights_and_gradients(cost_basis="measured")).verdict
    assert verdict.endswith("and their gradients back: 8.0 MB over the bus a step.")
