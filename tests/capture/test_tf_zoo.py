"""Shares of what capture can name, size and locate, over programs of many kinds."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

ZOO = (
    "mlp",
    "embedding",
    "keras_lstm",
    "attention",
    "control_flow",
    "dataset_inside",
    "gan",
    "outer_tape",
    "modules",
    "python_op",
    "ragged",
    "saved_model",
    "unknown_batch",
    "convnet",
)


@dataclass
class Shares:
    variables: int = 0
    unnamed: list[str] = field(default_factory=list)
    unlocated: list[str] = field(default_factory=list)
    sends: int = 0
    unsized: list[str] = field(default_factory=list)
    without_line: list[str] = field(default_factory=list)


def is_known(producer, slot):
    if producer.op == "Const":
        return True
    shapes = producer.attr["_output_shapes"].list.shape if "_output_shapes" in producer.attr else []
    return len(shapes) > slot and not shapes[slot].unknown_rank and all(dim.size >= 0 for dim in shapes[slot].dim)


def measure(name, trace):
    shares = Shares()
    for kind in ("variable", "table", "iterator", "resource"):
        for one in trace.arguments(kind):
            shares.variables += 1
            if not one["name"]:
                shares.unnamed.append(f"{name}: {one['node']}")
            if kind == "variable" and not one["source"]:
                shares.unlocated.append(f"{name}: {one['name']}")
    copied = {
        row.node_name.rpartition(":")[0] for lane in trace.message.step_stats.dev_stats for row in lane.node_stats
    }
    for graph_name, graphs in trace.graphs().items():
        for graph in graphs:
            nodes = {node.name: node for node in graph.node}
            for node in graph.node:
                if node.op not in ("_Send", "_HostSend"):
                    continue
                source, _, slot = node.input[0].partition(":")
                producer = nodes[source]
                if producer.op == "Const" and producer.input:  # a control edge
                    continue
                shares.sends += 1
                edge = node.attr["tensor_name"].s
                ends = {one.name for part in graphs for one in part.node if edge == one.attr["tensor_name"].s}
                if not is_known(producer, int(slot or 0)) and not ends & copied:
                    shares.unsized.append(f"{name}: {node.name} of {producer.op}")
                if trace.line_of(graph_name, node.name) is None:
                    shares.without_line.append(f"{name}: {node.name} of {producer.op}")
    return shares


@pytest.fixture(scope="module")
def shares(zygote):
    found = {}
    for name in ZOO:
        ran = zygote.run("zoo.py", name)
        assert ran.code == 0, ran.err
        assert not ran.warnings
        found[name] = measure(name, ran.trace)
    return found


@pytest.mark.parametrize("name", ZOO)
def test_every_variable_table_and_iterator_is_named(shares, name):
    assert shares[name].variables
    assert shares[name].unnamed == []


@pytest.mark.parametrize("name", ZOO)
def test_every_transfer_has_a_size(shares, name):
    assert shares[name].sends
    assert shares[name].unsized == []


def test_nine_of_ten_transfers_have_the_users_line(shares):
    total = sum(one.sends for one in shares.values())
    missing = [text for one in shares.values() for text in one.without_line]
    print(
        f"\nvariables {sum(one.variables for one in shares.values())}, "
        f"transfers {total}, without line {len(missing)}: {missing}"
    )
    assert len(missing) < 0.1 * total


def test_every_variable_has_the_line_that_made_it(shares):
    assert [text for one in shares.values() for text in one.unlocated] == []
