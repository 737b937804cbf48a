"""What normalize makes of step_stats: every event once, in whose name, in which direction, in which step."""

import pytest

from tests.builders import (
    CPU0,
    CPU1,
    EPOCH_US,
    GPU0,
    GPU1,
    copy,
    function_graphs,
    gpu_lanes,
    graph,
    kernel,
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
from tfplace.errors import UsageError
from tfplace.read.tables.normalize import normalize

MATMUL = kernel("y", "MatMul", start=30, duration=5)
UPLOAD = copy("edge_1_x", "HtoD", 400, start=20, duration=3, memory="Pageable to Device")


def slugs(trace):
    return [note.slug for note in trace.notes]


def kinds(trace):
    return trace.events["kind"].value_counts().to_dict()


# ---------------------------------------------------------------- every event once


def test_kernels_and_copies_that_stand_twice_are_counted_once():
    trace = load(run_metadata(dev_stats=gpu_lanes(0, kernels=[MATMUL], copies=[UPLOAD])))
    assert kinds(trace) == {"kernel": 1, "memcpy": 1}
    assert rows(trace.events, "name", "lane") == [
        ("edge_1_x:MEMCPYHtoD", "/device:GPU:0/stream:14"),  # the stream's own lane is kept
        ("y:MatMul", "/device:GPU:0/stream:13"),
    ]


def test_two_copies_that_look_alike_are_two():
    alike = [UPLOAD, UPLOAD]
    assert kinds(load(run_metadata(dev_stats=gpu_lanes(0, copies=alike)))) == {"memcpy": 2}
    # also where the summary lane lost one of them
    lanes = [lane("/device:GPU:0/stream:14", *alike), lane("/device:GPU:0/memcpy", UPLOAD)]
    assert kinds(load(run_metadata(dev_stats=lanes))) == {"memcpy": 2}
    lanes = [lane("/device:GPU:0/stream:14", UPLOAD), lane("/device:GPU:0/memcpy", *alike)]
    assert kinds(load(run_metadata(dev_stats=lanes))) == {"memcpy": 2}


def test_equal_copies_on_two_streams_are_two():
    lanes = [
        lane("/device:GPU:0/stream:14", UPLOAD),
        lane("/device:GPU:0/stream:15", UPLOAD),
        lane("/device:GPU:0/memcpy", UPLOAD, UPLOAD),
    ]
    assert kinds(load(run_metadata(dev_stats=lanes))) == {"memcpy": 2}


def test_equal_copies_on_two_gpus_are_two():
    trace = load(run_metadata(dev_stats=[*gpu_lanes(0, copies=[UPLOAD]), *gpu_lanes(1, copies=[UPLOAD])]))
    assert trace.copies["device_id"].tolist() == [0, 1]


@pytest.mark.parametrize("name", ["/device:GPU:0/stream:all", "/device:GPU:0/stream:13"])
def test_files_without_one_of_the_lanes_lose_nothing(name):
    trace = load(run_metadata(dev_stats=[lane(name, MATMUL, UPLOAD)]))
    assert kinds(trace) == {"kernel": 1, "memcpy": 1}


def test_the_host_side_run_of_a_gpu_op_is_no_kernel():
    trace = load(
        run_metadata(
            dev_stats=[lane(GPU0, op("y", "MatMul", "x", start=10, duration=2)), *gpu_lanes(0, kernels=[MATMUL])]
        )
    )
    assert rows(trace.events, "kind", "name", "op", "device_id", "node_id") == [
        ("op", "y", "MatMul", 0, 0),
        ("kernel", "y:MatMul", "MatMul", 0, 0),
    ]


def test_host_threads_syncs_and_fills_are_no_work_of_nodes():
    trace = load(
        run_metadata(
            dev_stats=[
                lane(CPU0, op("x", "Const", start=1, duration=1)),
                lane(
                    "/host:CPU",
                    stat("x:Const", 1, 1, f"id=5,device={CPU0},async=false", thread=77),
                    threads={77: "tf_Compute"},
                ),
                lane("/device:GPU:0/sync", stat("cuStreamSynchronize", 3, 1, "ThreadId 77", thread=77)),
                lane("/device:GPU:0/stream:14", stat("Memset", 4, 1, "Memset size:4")),
                lane("/device:GPU:0/stream:", stat("something", 5, 1, "something")),
            ]
        )
    )
    assert rows(trace.events, "kind", "node_id", "thread_id") == [
        ("op", 0, None),
        ("runtime", 0, 77),
        ("sync", None, 77),
        ("memset", None, None),
        ("annotation", None, None),
    ]
    assert len(trace.nodes) == 1


# ---------------------------------------------------------------- copies


def test_a_copy_is_described_in_the_copies_table():
    trace = load(run_metadata(dev_stats=gpu_lanes(0, copies=[UPLOAD])))
    assert rows(trace.copies) == [(0, "H2D", 400, "pageable", "device", "edge_1_x", None, None, 0)]
    assert trace.has_device_times


def test_a_copy_made_inside_an_op_belongs_to_that_op():
    inside = copy("concat:ConcatV2", "HtoD", 8, start=12, duration=1)
    trace = load(
        run_metadata(
            dev_stats=[lane(GPU0, op("concat", "ConcatV2", "a", start=10, duration=5)), *gpu_lanes(0, copies=[inside])]
        )
    )
    assert rows(trace.copies, "edge_name", "node_name", "op") == [(None, "concat", "ConcatV2")]
    assert rows(trace.events[trace.events["kind"] == "memcpy"], "node_id", "op") == [(0, "ConcatV2")]


def test_copies_named_after_send_or_recv_find_that_node_on_either_device():
    partitions = [
        graph(CPU0, node("x", "_Arg"), send("edge_5_x", "x", CPU0, GPU0, name="x/_2")),
        graph(GPU0, recv("x/_3", "edge_5_x", CPU0, GPU0), node("y", "Relu", "x/_3")),
    ]
    sent = stat(f"x/_2:_Send#id=5,device={CPU0},async=false#::edge_5_x::MemcpyHtoD", 20, 1, "64 bytes")
    received = stat("x/_3:_Recv", 30, 1, "MemcpyH2D kind_src:pinned kind_dst:device size:64 dest:0 async:1")
    trace = load(run_metadata(partitions, [lane("/gpu:0 (Tesla V100)/context#0/stream#2:MemcpyHtoD", sent, received)]))
    assert rows(trace.copies, "direction", "num_bytes", "src_memory", "edge_name", "node_name") == [
        ("H2D", 64, None, "edge_5_x", "x/_2"),
        ("H2D", 64, "pinned", None, "x/_3"),
    ]
    assert trace.nodes["name"].take(trace.events["node_id"].tolist()).tolist() == ["x/_2", "x/_3"]
    assert rows(trace.devices, "name", "model") == [("CPU:0", None), ("GPU:0", "Tesla V100")]


def test_copies_between_two_gpus_are_p2p_and_within_one_d2d():
    partitions = [
        graph(GPU0, node("a", "Relu"), send("edge_1_a", "a", GPU0, GPU1)),
        graph(GPU1, recv("a/_1", "edge_1_a", GPU0, GPU1), node("b", "Relu", "a/_1")),
    ]
    between = stat("edge_1_a::MemcpyDtoD", 10, 1, "100 bytes")
    within = stat("w:Snapshot:MEMCPYDtoD", 20, 1, "MEMCPYDtoD 8 bytes (Device to Device)")
    said = copy("edge_9_z", "PtoP", 7, start=30, duration=1)
    elsewhere = stat("q", 40, 1, "MemcpyD2D size:5 dest:1 async:1")
    trace = load(run_metadata(partitions, [lane("/device:GPU:0/stream:13", between, within, said, elsewhere)]))
    assert rows(trace.copies, "num_bytes", "direction") == [(100, "P2P"), (8, "D2D"), (7, "P2P"), (5, "P2P")]


def test_without_graphs_a_gpu_edge_is_p2p_where_its_reader_is_on_another_gpu():
    trace = load(
        run_metadata(
            dev_stats=[
                lane(GPU0, op("a", "Relu", start=1, duration=1)),
                lane(GPU1, op("b", "Relu", "a/_1", start=9, duration=1)),
                lane("/device:GPU:0/stream:13", copy("edge_3_a", "DtoD", 100, start=5, duration=1)),
            ]
        )
    )
    assert trace.copies["direction"].tolist() == ["P2P"]


def test_the_direction_may_stand_on_the_lane_alone():
    row = stat("edge_1_x", 5, 1, "edge_1_x bytes:40 aync")
    both = [lane("/device:GPU:0/memcpy", row), lane("/device:GPU:0/stream:14<MemcpyH2D>", row)]
    assert rows(load(run_metadata(dev_stats=both)).copies, "direction", "num_bytes") == [("H2D", 40)]
    only = load(run_metadata(dev_stats=both[:1]))
    assert rows(only.copies, "direction", "num_bytes") == [(None, 40)]
    assert "copies-without-direction" in slugs(only)


def test_copies_that_do_not_say_their_size_are_counted():
    trace = load(run_metadata(dev_stats=[lane("/device:GPU:0/memcpy", stat("x:MEMCPYDtoH", 5, 1, ""), UPLOAD)]))
    assert rows(trace.copies, "num_bytes") == [(None,), (400,)]
    assert [n.text for n in trace.notes if n.slug == "copies-without-size"] == [
        "1 of 2 copies do not say how many bytes they moved."
    ]


def test_a_tensor_from_another_worker_is_a_host_to_host_copy_of_its_edge():
    far = "/job:ps/replica:0/task:0/device:CPU:0"
    near = "/job:worker/replica:0/task:1/device:CPU:0"
    label = f"[1.2MB] edge_3_x from {far} to {near}"
    trace = load(
        run_metadata(
            dev_stats=[
                lane(far, op("x", "Const", start=0, duration=1)),
                lane(near, stat("RecvTensor", 2, 9, label, outputs=[output(0, "float32", None, 1_250_000)])),
            ]
        )
    )
    assert rows(trace.copies, "direction", "num_bytes", "edge_name", "device_id") == [("H2H", 1_250_000, "edge_3_x", 1)]
    assert trace.devices["name"].tolist() == ["ps/0/CPU:0", "worker/1/CPU:0"]
    assert trace.nodes["name"].tolist() == ["x"]
    assert not trace.has_device_times


# ---------------------------------------------------------------- devices


def test_lanes_of_two_tasks_stay_apart():
    tasks = [f"/job:worker/replica:0/task:{n}/device:GPU:0" for n in (0, 1)]
    dev_stats = [lane(name, op("y", "Relu", "x", start=1, duration=1)) for name in tasks]
    trace = load(run_metadata(dev_stats=[*dev_stats, lane("/device:GPU:0/stream:all", MATMUL)]))
    assert rows(trace.devices, "name", "task") == [
        ("GPU:0", None),  # the lane does not say whose GPU it is
        ("worker/0/GPU:0", "/job:worker/replica:0/task:0"),
        ("worker/1/GPU:0", "/job:worker/replica:0/task:1"),
    ]
    assert len(trace.nodes) == 2
    assert "lanes-without-task" in slugs(trace)


@pytest.mark.parametrize("wanted", ["CPU:1", "cpu:1", "/device:CPU:1", CPU1])
def test_a_cpu_device_can_stand_for_the_accelerator(wanted):
    message = run_metadata([graph(CPU0, node("x", "_Arg")), graph(CPU1, node("y", "Relu"))])
    trace = load(message, accelerator=wanted)
    assert rows(trace.devices, "name", "kind", "role") == [("CPU:0", "CPU", "host"), ("CPU:1", "CPU", "device")]
    assert trace.devices["role"].tolist() != load(message).devices["role"].tolist()


def test_several_accelerators_are_named_with_commas():
    trace = load(
        run_metadata([graph(d, node("x", "Abs")) for d in (CPU0, CPU1, f"{CPU1[:-1]}2")]), accelerator="CPU:1, CPU:2"
    )
    assert trace.devices["role"].tolist() == ["host", "device", "device"]


@pytest.mark.parametrize("wanted", ["CPU:7", "GPU:0", "nonsense", "CPU:1/x\x1b[31m"])
def test_an_accelerator_that_is_not_there_is_a_usage_error_that_lists_the_devices(wanted):
    message = run_metadata([graph(CPU0, node("x", "_Arg")), graph(CPU1, node("y", "Relu"))])
    with pytest.raises(UsageError) as caught:
        load(message, accelerator=wanted)
    assert "CPU:0, CPU:1" in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_gpu_with_nodes_and_no_lanes_was_not_traced():
    trace = load(
        run_metadata(
            [graph(GPU0, node("y", "Relu"), node("z", "Relu", "y"))],
            [lane(GPU0, op("y", "Relu", start=1, duration=1))],
        )
    )
    assert [(n.text, n.count) for n in trace.notes if n.slug == "no-device-lanes"] == [
        ("GPU:0 holds 2 nodes, but its kernels and copies were not traced.", 2)
    ]
    assert (trace.has_times, trace.has_device_times) == (True, False)


# ---------------------------------------------------------------- nodes


def test_nodes_are_inferred_where_there_are_no_graphs():
    trace = load(
        run_metadata(
            dev_stats=[
                lane(
                    CPU0,
                    op("_SOURCE", "NoOp", start=0, duration=1),
                    op("w", "VariableV2", start=1, duration=1, outputs=[output(0, "float32", "[2,3]", 24)]),
                    op("w/read", "Identity", "w", start=2, duration=1),
                    op("it", "IteratorGetNext", start=3, duration=1,
                       outputs=[output(0, "float32", "[8]", 32), output(1, "int32", "[8]", 32)]),
                ),
                lane(GPU0, op("y", "MatMul", "_recv_x_0", "w/read/_5", "^it/_9", start=5, duration=1),
                     op("z", "Add", "y:1", "it/_7", "gone", start=7, duration=1)),
            ]
        )
    )  # fmt: skip
    assert rows(trace.nodes, "name", "op", "graph", "device_id", "requested_device") == [
        ("w", "VariableV2", "inferred", 0, None),
        ("w/read", "Identity", "inferred", 0, None),
        ("it", "IteratorGetNext", "inferred", 0, None),
        ("y", "MatMul", "inferred", 1, None),
        ("z", "Add", "inferred", 1, None),
        ("_recv_x_0", "_Recv", "inferred", 1, None),
    ]
    assert rows(trace.edges, "src_node_id", "src_slot", "dst_node_id", "dst_slot", "is_control") == [
        (0, 0, 1, 0, False),
        (5, 0, 3, 0, False),  # the feed
        (1, None, 3, 1, False),  # crosses; which output of w/read was not recorded
        (2, None, 3, None, True),
        (3, 1, 4, 0, False),
        (2, None, 4, 1, False),  # crosses; one of two outputs, the label does not say which
    ]
    assert [(n.slug, n.count) for n in trace.notes][:2] == [("no-partition-graphs", None), ("inferred-nodes", 6)]
    assert "1 inputs lead to no node" in trace.notes[1].text
    assert not trace.has_graphs
    assert trace.tf_era == "TF1"


def test_the_output_that_crosses_is_known_where_a_node_has_only_one():
    trace = load(
        run_metadata(
            dev_stats=[
                lane(CPU0, op("x", "Const", start=0, duration=1, outputs=[output(0, "float32", "[8]", 32)])),
                lane(GPU0, op("y", "Relu", "x/_1", start=5, duration=1)),
            ]
        )
    )
    assert rows(trace.edges, "src_slot") == [(0,)]


def test_a_producer_of_that_name_on_two_devices_is_not_guessed():
    trace = load(
        run_metadata(
            dev_stats=[
                lane(CPU0, op("x", "Const", start=0, duration=1)),
                lane(GPU1, op("x", "Const", start=0, duration=1)),
                lane(GPU0, op("y", "Relu", "x/_1", start=5, duration=1)),
            ]
        )
    )
    assert len(trace.edges) == 0


def test_several_steps_without_graphs_have_each_node_once():
    step = run_metadata(dev_stats=[lane(CPU0, op("x", "Const", start=0, duration=1), op("y", "Relu", "x", start=2,
                                                                                        duration=1))])  # fmt: skip
    trace = load(step, step, step)
    assert trace.nodes["name"].tolist() == ["x", "y"]
    assert len(trace.edges) == 1
    assert trace.events["node_id"].value_counts().to_dict() == {0: 3, 1: 3}


def test_events_meet_their_nodes_by_device_and_name():
    trace = load(
        run_metadata(
            [graph(CPU0, node("x", "Const"), node("same", "Abs", "x")), graph(GPU0, node("same", "Relu"))],
            [
                lane(CPU0, op("same", "Abs", "x", start=1, duration=1), op("_SOURCE", "NoOp", start=0, duration=1)),
                lane(GPU0, op("same", "Relu", start=2, duration=1)),
                *gpu_lanes(0, kernels=[kernel("same", "Relu", start=3, duration=1)]),
            ],
        )
    )
    assert rows(trace.events, "name", "kind", "op", "node_id") == [
        ("_SOURCE", "op", "NoOp", None),
        ("same", "op", "Abs", 1),
        ("same", "op", "Relu", 2),
        ("same:Relu", "kernel", "Relu", 2),
    ]


def test_a_name_that_two_functions_share_is_decided_by_the_op_or_left_open():
    functions = [
        function_graphs([graph(CPU0, node("read", "ReadVariableOp"), node("both", "Abs"))]),
        function_graphs([graph(CPU0, node("read", "Identity"), node("both", "Abs"), node("more", "Abs"))]),
    ]
    trace = load(
        run_metadata(
            dev_stats=[lane(CPU0, op("read", "Identity", start=1, duration=1), op("both", "Abs", start=2, duration=1))],
            functions=functions,
        )
    )
    named = trace.nodes["graph"] + "/" + trace.nodes["name"]
    assert named[trace.events["node_id"][0]] == "function:1/partition:0/read"
    assert rows(trace.events, "node_id")[1] == (None,)


def test_what_a_run_recorded_wins_over_attributes():
    trace = load(
        run_metadata(
            [graph(CPU0, node("x", "_Arg", T="float32", _output_shapes=["[?,4]"]), node("s", "Abs"))],
            [
                lane(
                    CPU0,
                    op("x", "_Arg", start=0, duration=1, outputs=[output(0, "float32", "[16,4]", 512, "gpu_host_bfc")]),
                    op("s", "Abs", start=1, duration=1,
                       outputs=[output(0, "string", "[2]", 48), output(1, "int64", None, 80),
                                output(2, "int64", "[3]")]),
                )
            ],
        )
    )  # fmt: skip
    assert rows(trace.outputs) == [
        (0, 0, "float32", "[16,4]", 256, "gpu_host_bfc", "step_stats"),  # the value, not the buffer it is part of
        (1, 0, "string", "[2]", None, "cpu", "step_stats"),  # the buffer of handles is not the text
        (1, 1, "int64", None, 80, "cpu", "step_stats"),  # without a shape the buffer is the best there is
        (1, 2, "int64", "[3]", 24, None, "step_stats"),
    ]


def test_of_a_node_that_ran_several_times_the_last_output_counts():
    trace = load(
        run_metadata(
            dev_stats=[
                lane(CPU0, *(op("x", "Abs", start=n, duration=1, outputs=[output(0, "int32", f"[{n}]", 4 * n)])
                             for n in (1, 2)))
            ]
        )
    )  # fmt: skip
    assert rows(trace.outputs, "shape", "num_bytes") == [("[2]", 8)]
    assert len(trace.events) == 2


# ---------------------------------------------------------------- steps and files


def step_at(start, *, partitions=(), epoch=EPOCH_US):
    return run_metadata(partitions, [lane(CPU0, op("x", "Const", start=start, duration=10, epoch=epoch))])


def test_several_files_are_several_steps_on_one_time_axis():
    trace = load(step_at(100), step_at(300), step_at(200))
    assert rows(trace.steps, "step_id", "start_ns", "end_ns", "boundary") == [
        (0, 0, 10_000, "file"),
        (1, 200_000, 210_000, "file"),
        (2, 100_000, 110_000, "file"),
    ]
    assert rows(trace.events, "event_id", "step_id", "start_ns") == [(0, 0, 0), (1, 2, 100_000), (2, 1, 200_000)]
    assert trace.source == ("step0.pb", "step1.pb", "step2.pb")


def test_the_same_graph_in_several_files_is_one_set_of_nodes():
    partitions = [graph(CPU0, node("x", "Const"))]
    trace = load(step_at(0, partitions=partitions), step_at(50, partitions=partitions))
    assert trace.nodes["graph"].tolist() == ["partition:0"]
    assert trace.events["node_id"].tolist() == [0, 0]
    assert "several-graphs" not in slugs(trace)


def test_different_graphs_of_several_files_stay_apart_and_events_meet_their_own():
    first, second = graph(CPU0, node("x", "Const")), graph(CPU0, node("x", "Const"), node("y", "Abs", "x"))
    trace = load(step_at(0, partitions=[first]), step_at(50, partitions=[second]))
    assert rows(trace.nodes, "name", "graph") == [
        ("x", "partition:0"),
        ("x", "step:1/partition:0"),
        ("y", "step:1/partition:0"),
    ]
    assert trace.events["node_id"].tolist() == [0, 1]
    assert "several-graphs" in slugs(trace)


def test_files_that_count_from_another_zero_follow_the_first():
    trace = load(step_at(0), step_at(5, epoch=0), step_at(700, epoch=0))
    assert rows(trace.steps, "start_ns", "end_ns") == [(0, 10_000), (10_000, 20_000), (20_000, 30_000)]
    assert [(n.slug, n.count) for n in trace.notes if n.slug == "clock-rebased"] == [("clock-rebased", 2)]


def test_recorded_step_windows_cut_the_events():
    base_ns = EPOCH_US * 1000
    context = {
        "steps": [
            {"num": 7, "start_ns": base_ns + 100_000, "end_ns": base_ns + 200_000, "cpu_time_ns": 5},
            {"num": 8, "start_ns": base_ns + 300_000, "end_ns": base_ns + 400_000},
            {"num": 9},
        ]
    }
    trace = load(
        run_metadata(
            dev_stats=[
                lane(CPU0, *(op(f"x{at}", "Abs", start=at, duration=1) for at in (50, 150, 250, 350, 450))),
                *gpu_lanes(0, kernels=[kernel("k", "Relu", start=210, duration=1)]),
            ]
        ),
        context=context,
    )
    # times count from the first event, 50 us after the epoch
    assert rows(trace.steps) == [
        (0, 7, 50_000, 150_000, 5, "context"),
        (1, 8, 250_000, 350_000, None, "context"),
        (2, 9, None, None, None, "context"),
    ]
    assert rows(trace.events, "name", "step_id") == [
        ("x50", None),
        ("x150", 0),
        ("k:Relu", 0),  # launched in step 7, ran a little after it
        ("x250", None),
        ("x350", 1),
        ("x450", None),
    ]


@pytest.mark.parametrize("steps", [None, [], "x", [None, 3], [{"start_ns": 5}], [{"start_ns": 9, "end_ns": 1}]])
def test_damaged_step_windows_do_no_harm(steps):
    trace = load(step_at(0), context={"steps": steps})
    assert len(trace.steps) == 1
    assert len(trace.events) == 1


def test_a_step_without_times_has_null_times():
    trace = load(run_metadata([graph(CPU0, node("x", "Const"))]))
    assert rows(trace.steps) == [(0, None, None, None, None, "file")]
    assert slugs(trace) == ["no-step-stats"]


def test_what_capture_stored_is_passed_on():
    context = {
        "tf_version": "2.21.0",
        "simulated": "1 GPU, 16 GB",
        "requested_devices": {"x": "/gpu:0"},
        "devices": [{"name": "CPU:0", "model": "EPYC", "memory_bytes": 64_000}, {"name": "GPU:3"}],
        "extra": 1,
    }
    trace = load(step_at(0, partitions=[graph(CPU0, node("x", "Const"))]), context=context)
    assert (trace.tf_version, trace.tf_era, trace.simulated) == ("2.21.0", "TF2", "1 GPU, 16 GB")
    assert trace.nodes["requested_device"].tolist() == ["/gpu:0"]
    assert rows(trace.devices, "model", "memory_bytes") == [("EPYC", 64_000)]
    assert trace.context["extra"] == 1


@pytest.mark.parametrize(
    ("message", "era"),
    [
        (run_metadata([graph(CPU0, node("v", "VariableV2"))]), "TF1"),
        (run_metadata([graph(CPU0, node("_arg_x_0_0", "_Arg"))]), "TF1"),
        (run_metadata([graph(CPU0, node("_recv_x_0", "_Recv"))]), "TF1"),
        (run_metadata([graph(CPU0, node("x", "Abs"), producer=21)]), "TF1"),
        (run_metadata([graph(CPU0, node("x", "Abs"), producer=127)]), None),
        (run_metadata([graph(CPU0, node("x", "Abs"), producer=2474)]), None),  # both generations write that
        (run_metadata(functions=[function_graphs([graph(CPU0, node("x", "Abs"))])]), "TF2"),
    ],
)
def test_generation_is_told_only_where_the_content_shows_it(message, era):
    assert load(message).tf_era == era


def test_no_files_is_a_usage_error():
    with pytest.raises(UsageError):
        normalize([])


def test_an_empty_run_metadata_is_an_empty_trace_with_notes():
    trace = load(run_metadata())
    assert slugs(trace) == ["no-partition-graphs", "no-step-stats"]
    tables = ("devices", "nodes", "edges", "outputs", "events", "copies", "steps")
    assert [len(trace.table(name)) for name in tables] == [0] * 7


# ---------------------------------------------------------------- hostile names


def test_odd_names_pass_through_unchanged():
    names = ["x" * 10_000, "<script>alert(1)</script>", "a\x1b[31mb", "日本", "", "x = y", "a\u202eb"]
    trace = load(
        run_metadata(
            [graph(CPU0, *(node(name, "Op" + name) for name in names))],
            [
                lane(CPU0, *(stat(name, n, 1, f"{name} = Op({name})") for n, name in enumerate(names, 1))),
                lane("/device:GPU:0/memcpy", *(stat(name, n, 1, name) for n, name in enumerate(names, 1))),
            ],
        )
    )
    assert trace.nodes["name"].tolist() == names
    assert set(trace.events["name"]) == set(names)
    assert kinds(trace) == {"op": 7, "memcpy": 7}


def test_odd_lane_names_are_kept_with_no_device():
    trace = load(run_metadata(dev_stats=[lane(name, stat("x", 1, 1)) for name in ("", "??", "\x1b]0;", "device:")]))
    assert rows(trace.events, "device_id", "kind") == [(None, "runtime")] * 4
