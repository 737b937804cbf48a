from tests.builders import (
    CPU0,
    CPU1,
    GPU0,
    JOB,
    func,
    function,
    function_graphs,
    graph,
    lane,
    load,
    node,
    op,
    recv,
    rows,
    run_metadata,
    send,
)
from tfplace.read.protos import GraphDef
from tfplace.read.raw import RawGraph, RawTrace
from tfplace.read.run_metadata import raw_from_message
from tfplace.read.tables.graph import LONGEST_TEXT, decode_attrs, split_input
from tfplace.read.tables.normalize import normalize


def placement(*nodes, device=""):
    """Return the Trace of a GraphDef file."""
    raw = RawTrace("g.pb", "GraphDef binary", None, [RawGraph("graph", "graph:0", graph(device, *nodes))])
    return normalize([raw])


def test_attributes_become_plain_values():
    item = node(
        "x",
        "Op",
        T="float32",
        R="int32_ref",
        H="float16",
        types=["float32", "resource"],
        shape="[32,10]",
        scalar="[]",
        partly="[?,10]",
        rank=None,
        shapes=["[2]", "[]"],
        text="hello",
        number=0,
        flag=False,
        real=0.5,
        numbers=[1, 2],
        nothing=[],
        _class=["loc:@w"],
        f=func("step_12"),
        value={"dtype": "float32", "shape": "[64,10]"},
    )
    assert decode_attrs(item) == {
        "T": "float32",
        "R": "int32_ref",
        "H": "float16",
        "types": ("float32", "resource"),
        "shape": "[32,10]",
        "scalar": "[]",
        "partly": "[?,10]",
        "rank": None,
        "shapes": ("[2]", "[]"),
        "text": "hello",
        "number": 0,
        "flag": False,
        "real": 0.5,
        "numbers": (1, 2),
        "nothing": (),
        "_class": ("loc:@w",),
        "f": "step_12",
        "value": {"dtype": "float32", "shape": "[64,10]", "num_bytes": 2560},
    }


def test_a_written_zero_differs_from_nothing_after_a_round_trip():
    message = GraphDef.FromString(graph(CPU0, node("a", "_Arg", index=0, flag=False)).SerializeToString())
    assert decode_attrs(message.node[0]) == {"index": 0, "flag": False}


def test_attributes_that_cannot_be_decoded_are_null_or_left_out():
    item = node("x", "Op", note=b"\xff\xfe", proto=b"p" * (LONGEST_TEXT + 1))
    item.attr["later_type"].type = 99
    item.attr["empty"].SetInParent()
    attrs = decode_attrs(item)
    assert attrs == {"note": "\ufffd\ufffd", "later_type": None, "empty": None}


def test_origins_of_an_inlined_node_are_kept():
    item = node("call/x", "Relu", debug=["x"])
    item.experimental_debug_info.original_func_names.append("f_1")
    assert decode_attrs(item) == {"original_node_names": ("x",), "original_func_names": ("f_1",)}


def test_inputs_are_split_into_node_and_slot():
    assert split_input("x") == ("x", 0)
    assert split_input("x:1") == ("x", 1)
    assert split_input("^x") == ("x", None)
    assert split_input("x:y") == ("x:y", 0)
    assert split_input("x:9999999999999") == ("x:9999999999999", 0)


def test_nodes_and_edges_of_partition_graphs():
    trace = load(
        run_metadata(
            partitions=[
                graph(CPU0, node("w", "VariableV2", _class=["loc:@w"]), node("r", "Identity", "w"), node("go", "NoOp")),
                graph(GPU0, node("a", "Split"), node("b", "Add", "a:1", "a", "^a")),
            ]
        )
    )
    assert rows(trace.nodes, "node_id", "name", "op", "graph", "device_id", "requested_device", "colocation_group") == [
        (0, "w", "VariableV2", "partition:0", 0, None, "w"),
        (1, "r", "Identity", "partition:0", 0, None, None),
        (2, "go", "NoOp", "partition:0", 0, None, None),
        (3, "a", "Split", "partition:1", 1, None, None),
        (4, "b", "Add", "partition:1", 1, None, None),
    ]
    assert rows(trace.edges) == [
        (0, 0, 0, 1, 0, False),
        (1, 3, 1, 4, 0, False),
        (2, 3, 0, 4, 1, False),
        (3, 3, None, 4, None, True),
    ]
    assert rows(trace.devices, "name", "role") == [("CPU:0", "host"), ("GPU:0", "device")]
    assert (trace.has_graphs, trace.has_times, trace.has_device_times) == (True, False, False)


def test_an_input_that_names_no_node_is_counted():
    trace = load(run_metadata([graph(CPU0, node("a", "Relu", "gone:1", "^lost"))]))
    assert len(trace.edges) == 0
    assert [(n.slug, n.count) for n in trace.notes if n.slug == "dangling-inputs"] == [("dangling-inputs", 2)]


def test_the_ends_of_a_transfer_name_devices_even_where_no_node_is_on_them():
    far = "/job:ps/replica:0/task:0/device:CPU:0"
    trace = load(run_metadata([graph(GPU0, recv("x/_1", "edge_1_x", far, GPU0), send("edge_2_y", "x/_1", GPU0, CPU0))]))
    assert rows(trace.devices, "name", "task") == [
        ("localhost/0/CPU:0", JOB),
        ("localhost/0/GPU:0", JOB),
        ("ps/0/CPU:0", "/job:ps/replica:0/task:0"),
    ]


def test_requests_come_from_the_graph_before_placement():
    inlined = node("call/y", "Relu", "x", debug=["y"])
    inlined.experimental_debug_info.original_func_names.append("f_7")
    free = node("call/z", "Relu", "x", debug=["z"])
    free.experimental_debug_info.original_func_names.append("f_7")
    foreign = node("fused", "_FusedOp", debug=["q"])
    foreign.experimental_debug_info.original_func_names.append("unknown_function")
    trace = load(
        run_metadata(
            functions=[
                function_graphs(
                    [graph(CPU0, node("x", "_Arg"), node("w", "Mul", "x"), inlined, free, foreign)],
                    pre=[
                        node("x", "_Arg"),
                        node("w", "Mul", "x", device="/device:GPU:0"),
                        node("call", "PartitionedCall", "x", device="/device:CPU:1"),
                    ],
                    library=[function("f_7", node("y", "Relu", device="/gpu:0"), node("z", "Relu"))],
                )
            ]
        )
    )
    assert rows(trace.nodes, "name", "requested_device") == [
        ("x", ""),  # known, and none asked
        ("w", "/device:GPU:0"),
        ("call/y", "/gpu:0"),
        ("call/z", "/device:CPU:1"),  # its call's request
        ("fused", None),  # nobody knows
    ]
    assert trace.tf_era == "TF2"
    assert trace.nodes["graph"].unique().tolist() == ["function:0/partition:0"]


def test_partition_graphs_that_repeat_a_functions_are_dropped():
    same = graph(CPU0, node("x", "_Arg"), node("y", "Relu", "x"))
    other = graph(CPU0, node("other", "NoOp"))
    trace = load(run_metadata([same, other], functions=[function_graphs([same], pre=[node("x", "_Arg")])]))
    assert rows(trace.nodes, "name", "graph") == [
        ("x", "function:0/partition:0"),
        ("y", "function:0/partition:0"),
        ("other", "partition:1"),
    ]


def test_graphs_that_only_hand_over_an_eager_constant_are_no_step():
    constant = graph(CPU0, node("input", "_Arg"), node("c", "_EagerConst", "input"), node("out", "_Retval", "c"))
    step = graph(CPU0, node("x", "Abs"))
    trace = load(run_metadata(functions=[function_graphs([constant]), function_graphs([step])]))
    assert trace.nodes["name"].tolist() == ["x"]


def test_a_graph_file_tells_requests_and_not_where_nodes_are():
    trace = placement(node("w", "VariableV2", device="/device:CPU:0"), node("y", "Relu", "w"))
    assert rows(trace.nodes, "name", "requested_device", "device_id", "graph") == [
        ("w", "/device:CPU:0", None, "graph:0"),
        ("y", "", None, "graph:0"),
    ]
    assert (trace.has_graphs, len(trace.steps), len(trace.devices)) == (False, 0, 0)
    assert [note.slug for note in trace.notes] == ["no-step-stats", "requests-only"]


def test_a_graph_file_beside_the_times_tells_what_was_asked_for():
    times = raw_from_message(run_metadata(dev_stats=[lane(CPU0, op("w", "VariableV2", start=0, duration=1))]))
    asked = graph("", node("w", "VariableV2", device="/device:GPU:0"), node("unused", "Abs"))
    trace = normalize([times, RawTrace("g.pb", "GraphDef binary", None, [RawGraph("graph", "graph:0", asked)])])
    assert rows(trace.nodes, "name", "requested_device", "device_id", "graph") == [
        ("w", "/device:GPU:0", 0, "inferred")
    ]
    assert len(trace.steps) == 1


def test_a_graph_file_in_which_every_node_names_a_whole_device_is_a_placed_graph():
    trace = placement(node("w", "VariableV2"), node("y", "Relu", "w"), device=GPU0)
    assert rows(trace.nodes, "name", "requested_device", "device_id") == [("w", None, 0), ("y", None, 0)]
    assert trace.has_graphs


def test_outputs_that_attributes_tell():
    trace = load(
        run_metadata(
            [
                graph(
                    CPU0,
                    node("c", "Const", dtype="int32", value={"dtype": "int32", "shape": "[3]"}),
                    node("v", "VariableV2", dtype="float32", shape="[2,3]"),
                    node("v/read", "Identity", "v", T="float32"),
                    node("h", "VarHandleOp", dtype="float32", shape="[4,5]"),
                    node("arg", "_Arg", T="resource", index=0, _handle_dtypes=["float64"], _handle_shapes=["[7]"]),
                    node("x", "_Arg", T="float32", index=1, _output_shapes=["[16,64]"]),
                    node("read_h", "ReadVariableOp", "h", dtype="float32"),
                    node("arg_on", "Identity", "arg", T="resource"),
                    node("read_arg", "ReadVariableOp", "arg_on", dtype="float64"),
                    node("y", "Relu", "x", T="float32"),
                    node("s", "Const", dtype="string", value={"dtype": "string", "shape": "[2]"}),
                )
            ]
        )
    )
    named = trace.outputs.merge(trace.nodes[["node_id", "name"]], on="node_id", validate="m:1")
    assert rows(named, "name", "slot", "dtype", "shape", "num_bytes", "evidence") == [
        ("c", 0, "int32", "[3]", 12, "const"),
        ("v", 0, "float32", "[2,3]", 24, "shape_attr"),
        ("v/read", 0, "float32", "[2,3]", 24, "shape_attr"),
        ("arg", 0, "resource", None, None, "shape_attr"),
        ("x", 0, "float32", "[16,64]", 4096, "shape_attr"),
        ("read_h", 0, "float32", "[4,5]", 80, "shape_attr"),
        ("arg_on", 0, "resource", None, None, "shape_attr"),
        ("read_arg", 0, "float64", "[7]", 56, "shape_attr"),
        ("s", 0, "string", "[2]", None, "const"),  # the length of text is not in its shape
    ]


def test_a_ring_of_identities_ends():
    trace = load(run_metadata([graph(CPU0, node("a", "Identity", "b"), node("b", "Identity", "a"),
                                     node("r", "ReadVariableOp", "a"))]))  # fmt: skip
    assert len(trace.nodes) == 3
    assert len(trace.outputs) == 0


def test_devices_of_the_graph_keep_their_order_whatever_the_order_of_the_graphs():
    trace = load(run_metadata([graph(GPU0, node("a", "Abs")), graph(CPU1, node("b", "Abs")), graph(CPU0)]))
    assert rows(trace.devices, "device_id", "name") == [(0, "CPU:1"), (1, "GPU:0")]
    assert trace.nodes["device_id"].tolist() == [1, 0]
