"""Analyses of steps recorded on real GPUs, against counts made independently (EXPECTED.json beside the traces)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders import rows
from tfplace.analyze.study import analyze
from tfplace.read.load import load_trace

STEPS = (
    "rm_json_p5000_c2g_45.json",
    "rm_json_p5000x2_g2g.json",
    "rm_json_v100_pinned_1g.json",
    "rm_json_v100_unpinned_1g.json",
    "rm_json_v100x2_c2g.json",
    "rm_json_v100x2_g2g_nvlink.json",
    "rm_text_gpu0_dynstitch.pbtxt",
)  # those with partition graphs and copies
WITHOUT_GRAPHS = ("rm_text_tf1_inception_inference.pbtxt", "rm_text_tf1_mnist.pbtxt", "rm_text_tf1_resnet.pbtxt")


@pytest.mark.parametrize("name", STEPS)
def test_every_copy_meets_its_send(recorded: Path, name: str) -> None:
    expected = json.loads((recorded / "EXPECTED.json").read_text())[name]
    transfers = analyze(load_trace([str(recorded / name)])).transfers
    copies = transfers[transfers["event_id"].notna()]
    assert (copies["evidence"] == "both").sum() == expected["copies_with_send"] == len(copies)
    assert set(copies["join"]) == {"name"}


def test_all_seven_files_together_hold_158_copies_with_an_edge(recorded: Path) -> None:
    expected = json.loads((recorded / "EXPECTED.json").read_text())
    assert sum(expected[name]["copies_with_send"] for name in STEPS) == 158


@pytest.mark.parametrize("name", [*STEPS, *WITHOUT_GRAPHS])
def test_the_bus_carried_what_was_counted(recorded: Path, name: str) -> None:
    expected = json.loads((recorded / "EXPECTED.json").read_text())[name]
    transfers = analyze(load_trace([str(recorded / name)])).transfers
    seen = transfers[transfers["event_id"].notna()]
    for labels in (("H2D",), ("D2H",), ("D2D", "P2P")):
        found = seen[seen["direction"].isin(labels)]
        assert len(found) == sum(expected[label]["count"] for label in labels)
        assert found["num_bytes"].sum() == sum(expected[label]["bytes"] for label in labels)


def test_dynamic_stitch_of_2017_went_down_and_up_around_each_node(recorded: Path) -> None:
    analysis = analyze(load_trace([str(recorded / "rm_text_gpu0_dynstitch.pbtxt")]))
    name = analysis.flow.name
    columns = ("direction", "tensor_name", "num_bytes", "consumer_node_ids")
    copies = analysis.transfers[analysis.transfers["event_id"].notna()]
    named = {(way, tensor, size, tuple(name[c] for c in ids)) for way, tensor, size, ids in rows(copies, *columns)}
    down = {("D2H", f"identity-{i}", 400, (f"stitch-{i}",)) for i in range(10)} | {("D2H", "x", 400, ("stitch-0",))}
    up = {("H2D", f"stitch-{i}", 400, (f"identity-{i + 1}",)) for i in range(9)}
    assert named == down | up


@pytest.mark.parametrize("name", [*STEPS, *WITHOUT_GRAPHS, "rm_text_cpu_feed_tiny.pbtxt"])
def test_no_false_alarm_about_variables(recorded: Path, name: str) -> None:
    variables = analyze(load_trace([str(recorded / name)])).variables
    accused = variables[variables["verdict"] == "unnecessary"]
    assert (accused["num_bytes"] <= 8).all()  # scalar counters
    assert not set(accused["dtype"]) & {"int32", "string"}


def test_feeds_that_were_pinned_are_not_called_pageable(recorded: Path) -> None:
    """The label does not tell, and the allocator is 'cpu' either way: unknown."""
    transfers = analyze(load_trace([str(recorded / "rm_json_v100_pinned_1g.json")])).transfers
    assert "pageable" not in set(transfers["src_memory"])
