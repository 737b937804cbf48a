"""Pairs, joins and categories, on traces made by hand."""

from __future__ import annotations

from typing import Any

from tests.builders import (
    CPU0,
    EPOCH_US,
    GPU0,
    GPU1,
    copy,
    function_graphs,
    gpu_lanes,
    graph,
    lane,
    load,
    node,
    op,
    output,
    recv,
    rows,
    run_metadata,
    send,
    stat,
)
from tfplace.analyze.analysis import Analysis
from tfplace.analyze.study import analyze
from tfplace.read.run_metadata import raw_from_bytes
from tfplace.read.tables.normalize import normalize

GRADIENT = "gradients/y_grad/MatMul"


def training_step(copies: list[Any] | None = None, gpu_times: bool = True) -> Any:
    """w (float32 [256,10], 10,240 B) on the CPU, x fed, y on the GPU, the gradient back, the loss fetched."""
    cpu = graph(
        CPU0,
        node("w", "VariableV2", dtype="float32", shape="[256,10]"),
        node("w/read", "Identity", "w", T="float32"),
        send("edge_1_w/read", "w/read", CPU0, GPU0),
        node("_arg_x_0_0", "_Arg", T="float32", index=0),
        send("edge_2__arg_x_0_0", "_arg_x_0_0", CPU0, GPU0),
        recv("g/_9", "edge_3_g", GPU0, CPU0),
        node("rate", "Const", dtype="float32", value={"dtype": "float32", "shape": "[]"}),
        node("update", "ApplyGradientDescent", "w", "rate", "g/_9", T="float32"),
        recv("loss/_8", "edge_4_loss", GPU0, CPU0),
        node("_retval_loss_0_0", "_Retval", "loss/_8", T="float32", index=0),
    )
    gpu = graph(
        GPU0,
        recv("w/read/_1", "edge_1_w/read", CPU0, GPU0),
        recv("x/_3", "edge_2__arg_x_0_0", CPU0, GPU0),
        node("y", "MatMul", "x/_3", "w/read/_1", T="float32"),
        node("loss", "Mean", "y", T="float32", Tidx="int32"),
        send("edge_4_loss", "loss", GPU0, CPU0),
        node(GRADIENT, "MatMul", "x/_3", "y", T="float32"),
        send("edge_3_g", GRADIENT, GPU0, CPU0),
    )
    stats = [
        lane(
            CPU0,
            op("w", "VariableV2", start=0, duration=1, outputs=[output(0, "float32", "[256,10]", 10240)]),
            op("_arg_x_0_0", "_Arg", start=1, duration=1, outputs=[output(0, "float32", "[32,256]", 32768)]),
        ),
        lane(GPU0, op("loss", "Mean", "y", start=30, duration=1, outputs=[output(0, "float32", "[]", 4)])),
    ]
    return run_metadata([cpu, gpu], stats + (gpu_lanes(0, copies=copies or []) if gpu_times else []))


NAMED = [
    copy("edge_1_w/read", "HtoD", 10240, start=5, duration=4, memory="Pageable to Device"),
    copy("edge_2__arg_x_0_0", "HtoD", 32768, start=10, duration=8, memory="Pinned to Device"),
    copy("edge_3_g", "DtoH", 10240, start=40, duration=4),
    copy("edge_4_loss", "DtoH", 4, start=50, duration=2),
]


def study(message: Any, **more: Any) -> Analysis:
    return analyze(load(message, **more))


def named(analysis: Analysis, ids: tuple[int, ...]) -> list[str]:
    return [analysis.flow.name[i] for i in ids]


def test_each_copy_meets_its_edge_by_name() -> None:
    transfers = study(training_step(NAMED)).transfers
    assert rows(transfers, "tensor_name", "direction", "num_bytes", "category", "evidence", "join") == [
        ("w/read", "H2D", 10240, "variable", "both", "name"),
        ("_arg_x_0_0", "H2D", 32768, "input", "both", "name"),
        (GRADIENT, "D2H", 10240, "gradient", "both", "name"),
        ("loss", "D2H", 4, "fetch", "both", "name"),
    ]
    assert rows(transfers, "src_memory", "dst_memory")[:2] == [("pageable", "device"), ("pinned", "device")]


def test_ends_of_a_transfer_are_its_producer_and_all_its_consumers() -> None:
    analysis = study(training_step(NAMED))
    x = analysis.transfers.iloc[1]
    assert analysis.flow.name[x["producer_node_id"]] == "_arg_x_0_0"
    assert named(analysis, x["consumer_node_ids"]) == ["y", GRADIENT]


def test_edges_without_copies_keep_their_bytes_and_say_so() -> None:
    transfers = study(training_step(gpu_times=False)).transfers
    assert rows(transfers, "tensor_name", "num_bytes", "evidence", "start_ns") == [
        ("w/read", 10240, "send_recv", None),
        ("_arg_x_0_0", 32768, "send_recv", None),
        ("loss", 4, "send_recv", None),
        (GRADIENT, 10240, "send_recv", None),  # the size of the variable that it updates
    ]


def test_nameless_copies_join_by_direction_and_size_in_order() -> None:
    label = "MemcpyH2D kind_src:pageable kind_dst:device size:{} dest:0 async:1"
    copies = [
        stat("MemcpyH2D", 5, 4, label.format(10240)),
        stat("MemcpyH2D", 10, 4, label.format(32768)),
        stat("MemcpyD2H", 40, 4, "MemcpyD2H kind_src:device kind_dst:pinned size:77 dest:0 async:1"),
    ]
    transfers = study(training_step(copies)).transfers
    joined = {(r[0], r[1], r[2]) for r in rows(transfers, "tensor_name", "evidence", "join")}
    assert ("w/read", "both", "order") in joined
    assert ("_arg_x_0_0", "both", "order") in joined
    # a copy of 77 bytes fits no edge: kept apart, and both device-to-host edges stay unobserved
    assert [r for r in joined if r[1] == "memcpy"] == [("MemcpyD2H", "memcpy", "none")] or (
        "(unattributed)",
        "memcpy",
        "none",
    ) in joined
    assert ("loss", "send_recv", "none") in joined


def test_more_nameless_copies_than_edges_are_not_guessed() -> None:
    label = "MemcpyH2D kind_src:pageable kind_dst:device size:10240 dest:0 async:1"
    transfers = study(training_step([stat("MemcpyH2D", 5, 1, label), stat("MemcpyH2D", 7, 1, label)])).transfers
    assert "order" not in set(transfers["join"])


def test_copy_inside_an_op_is_no_edge() -> None:
    inner = copy("y:MatMul", "HtoD", 16, start=20, duration=1)
    transfers = study(training_step([*NAMED, inner])).transfers
    [row] = [r for r in rows(transfers, "tensor_name", "edge_name", "evidence", "category", "num_bytes") if r[4] == 16]
    assert row == ("y", None, "memcpy", "unknown", 16)
    assert transfers["inside_op"].dropna().tolist() == ["MatMul"]


def host_memory_op() -> Any:
    """An op booked on the GPU whose kernel works in host memory: down, and up again."""
    gpu = graph(
        GPU0,
        node("a", "Relu", T="float32"),
        send("edge_1_a", "a", GPU0, GPU0),
        recv("a/_1", "edge_1_a", GPU0, GPU0, host=True),
        node("stitch", "DynamicStitch", "a/_1", T="float32"),
        send("edge_2_stitch", "stitch", GPU0, GPU0, host=True),
        recv("stitch/_3", "edge_2_stitch", GPU0, GPU0),
        node("b", "Relu", "stitch/_3", T="float32"),
        send("edge_3_stitch", "stitch", GPU0, CPU0, host=True),
    )
    cpu = graph(CPU0, recv("stitch/_5", "edge_3_stitch", GPU0, CPU0), node("out", "Identity", "stitch/_5", T="float32"))
    return run_metadata([gpu, cpu])


def test_direction_follows_the_memory_at_both_ends_not_the_devices() -> None:
    analysis = study(host_memory_op())
    names = analysis.trace.devices["name"].tolist()
    got = [
        (edge, direction, names[src], names[dst])
        for edge, direction, src, dst in rows(
            analysis.transfers, "edge_name", "direction", "src_device_id", "dst_device_id"
        )
    ]
    assert got == [
        ("edge_1_a", "D2H", "GPU:0", "CPU:0"),
        ("edge_2_stitch", "H2D", "CPU:0", "GPU:0"),
        ("edge_3_stitch", "H2H", "CPU:0", "CPU:0"),
    ]


def test_gpu_to_gpu_is_p2p() -> None:
    first = graph(GPU0, node("a", "Relu", T="float32"), send("edge_1_a", "a", GPU0, GPU1))
    second = graph(GPU1, recv("a/_1", "edge_1_a", GPU0, GPU1), node("b", "Relu", "a/_1", T="float32"))
    moved = copy("edge_1_a", "DtoD", 64, start=3, duration=2)
    transfers = study(run_metadata([first, second], gpu_lanes(0, copies=[moved]))).transfers
    assert rows(transfers, "direction", "src_device_id", "dst_device_id", "evidence") == [("P2P", 0, 1, "both")]


def test_control_edge_carries_nothing() -> None:
    cpu = graph(
        CPU0,
        node("a", "NoOp"),
        node("a/ctrl/_0", "Const", "^a", dtype="float32", value={"dtype": "float32", "shape": "[0]"}),
        send("edge_1_a", "a/ctrl/_0", CPU0, GPU0),
    )
    gpu = graph(
        GPU0,
        recv("a/_1", "edge_1_a", CPU0, GPU0),
        node("a/ctrl/_2", "Identity", "a/_1", T="float32"),
        node("b", "Const", "^a/ctrl/_2", dtype="float32", value={"dtype": "float32", "shape": "[4]"}),
    )
    analysis = study(run_metadata([cpu, gpu]))
    [row] = rows(analysis.transfers, "category", "num_bytes", "tensor_name", "consumer_node_ids")
    assert row[:3] == ("control", 0, "a")
    assert named(analysis, row[3]) == ["b"]


def test_rows_of_a_table_are_not_the_table() -> None:
    cpu = graph(
        CPU0,
        node("table", "VariableV2", dtype="float32", shape="[1000,64]"),
        node("ids", "_Arg", T="int64", index=0),
        node("axis", "Const", dtype="int32", value={"dtype": "int32", "shape": "[]"}),
        node("rows", "GatherV2", "table", "ids", "axis", Tparams="float32", Tindices="int64", Taxis="int32"),
        send("edge_1_rows", "rows", CPU0, GPU0, T="float32"),
    )
    gpu = graph(GPU0, recv("rows/_1", "edge_1_rows", CPU0, GPU0), node("y", "Relu", "rows/_1", T="float32"))
    stats = [lane(CPU0, op("rows", "GatherV2", start=0, duration=1, outputs=[output(0, "float32", "[8,64]", 2048)]))]
    analysis = study(run_metadata([cpu, gpu], stats))
    assert rows(analysis.transfers, "category", "rows_only", "num_bytes", "variable_id") == [
        ("variable", True, 2048, 0)
    ]
    assert rows(analysis.variables, "verdict", "rows_only", "copied_each_step", "read_bytes_per_step") == [
        ("justified", True, False, 2048)
    ]


def test_unpaired_halves_are_counted_in_a_note() -> None:
    analysis = study(run_metadata([graph(GPU0, recv("x/_1", "edge_1_x", CPU0, GPU0), node("y", "Relu", "x/_1"))]))
    assert [(n.slug, n.count) for n in analysis.notes] == [("unpaired-transfers", 1)]
    assert analysis.transfers.empty


def test_copies_of_several_steps_are_rows_of_their_steps() -> None:
    transfers = analyze(load(training_step(NAMED), training_step(NAMED))).transfers
    counts = transfers.groupby("step_id")["num_bytes"].agg(["size", "sum"])
    assert counts.to_numpy().tolist() == [[4, 10240 + 32768 + 10240 + 4]] * 2


def test_without_graphs_the_copy_name_and_the_labels_tell_the_ends() -> None:
    stats = [
        lane(CPU0, op("IteratorGetNext", "IteratorGetNext", start=0, duration=1)),
        lane(GPU0, op("dense/MatMul", "MatMul", "IteratorGetNext/_5", "dense/kernel/read", start=20, duration=2)),
        *gpu_lanes(0, copies=[copy("edge_81_IteratorGetNext", "HtoD", 400, start=3, duration=2)]),
    ]
    analysis = study(run_metadata(dev_stats=stats))
    [row] = rows(analysis.transfers, "tensor_name", "category", "evidence", "edge_name", "consumer_node_ids")
    assert row[:4] == ("IteratorGetNext", "input", "memcpy", "edge_81_IteratorGetNext")
    assert named(analysis, row[4]) == ["dense/MatMul"]


def test_an_array_handed_to_a_function_is_known_by_its_size_alone() -> None:
    gpu = graph(
        GPU0,
        node("x", "_Arg", T="float32", index=0, _output_shapes=["[32,512]"]),
        node("y", "Neg", "x", T="float32"),
    )
    label = "MemcpyH2D kind_src:pageable kind_dst:device size:65536 dest:0 async:1"
    nameless = stat("MemcpyH2D", 5, 4, label)
    analysis = study(run_metadata((), gpu_lanes(0, copies=[nameless]), [function_graphs([gpu])]))
    [row] = rows(analysis.transfers, "tensor_name", "category", "evidence", "join", "consumer_node_ids")
    assert row[:4] == ("x", "input", "memcpy", "order")
    assert named(analysis, row[4]) == ["y"]


def test_a_copy_that_two_functions_could_have_made_is_that_of_the_one_running() -> None:
    """Both have an argument x; the names of Send and Recv change sides from run to run."""

    def function(serial: int, reader: str, size: str) -> Any:
        edge = f"edge_{serial}_x"
        cpu = graph(
            CPU0,
            node("x", "_Arg", T="float32", index=0, _output_shapes=[size]),
            send(edge, "x", CPU0, GPU0, name="x/_1"),
        )
        return function_graphs([cpu, graph(GPU0, recv("x/_2", edge, CPU0, GPU0), node(reader, "Sum", "x/_2"))])

    label = "MemcpyH2D kind_src:pageable kind_dst:device size:400 dest:0 async:1"
    copies = [stat(f"x/_{n}:_Send", start, 1, label) for n, start in ((1, 5), (2, 90), (2, 105), (1, 190))]
    ops = [op("train", "Sum", "x/_2", start=start, duration=10) for start in (10, 110)]
    ops += [op("evaluate", "Sum", "x/_2", start=start, duration=10) for start in (95, 195)]
    functions = [function(9, "train", "[100]"), function(2, "evaluate", "[100]")]
    windows = [{"start_ns": (EPOCH_US + at) * 1000, "end_ns": (EPOCH_US + at + 100) * 1000} for at in (0, 100)]
    raw = raw_from_bytes(
        run_metadata((), [lane(GPU0, *ops), *gpu_lanes(0, copies=copies)], functions).SerializeToString()
    )
    raw.context["steps"] = windows
    transfers = analyze(normalize([raw])).transfers
    assert rows(transfers, "step_id", "edge_name", "evidence") == [
        (0, "edge_9_x", "both"),
        (0, "edge_2_x", "both"),
        (1, "edge_9_x", "both"),
        (1, "edge_2_x", "both"),
    ]


def test_an_argument_that_capture_knows_as_a_constant_is_one() -> None:
    """Of two arguments of a function, the second was made once, outside of it."""
    cpu = graph(
        CPU0,
        *(node(name, "_Arg", T="float32", index=n, _output_shapes=["[100]"]) for n, name in enumerate("xk")),
        *(send(f"edge_{n}_{name}", name, CPU0, GPU0) for n, name in enumerate("xk")),
    )
    gpu = graph(
        GPU0,
        *(recv(f"{name}/_9", f"edge_{n}_{name}", CPU0, GPU0) for n, name in enumerate("xk")),
        node("y", "AddV2", "x/_9", "k/_9"),
    )
    raw = raw_from_bytes(run_metadata((), (), [function_graphs([cpu, gpu])]).SerializeToString())
    arguments = [{"index": 0, "kind": "input"}, {"index": 1, "kind": "constant"}]
    raw.context["functions"] = [{"graph": "function:0", "arguments": arguments}]
    transfers = analyze(normalize([raw])).transfers
    assert rows(transfers, "tensor_name", "category") == [("x", "input"), ("k", "constant")]
