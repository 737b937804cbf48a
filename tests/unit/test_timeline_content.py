"""What a timeline shows, worked out by hand for steps on two GPUs; see `two_gpu_step` for their times."""

import io
from dataclasses import replace

import pytest

from tests.builders import (
    CPU0,
    CPU1,
    GPU0,
    GPU1,
    copy,
    gpu_lanes,
    graph,
    kernel,
    lane,
    load,
    node,
    op,
    recv,
    run_metadata,
    send,
)
from tests.timeline_checker import check_timeline, ns, slice_finder
from tests.timeline_samples import timeline_of, two_gpu_step
from tfplace.analyze.study import analyze
from tfplace.diagnose.rule import Finding
from tfplace.errors import UsageError
from tfplace.report.timeline.build import build_timeline
from tfplace.report.timeline.chrome import write_chrome


def drawn(trace, **more):
    return checked(timeline_of(trace, **more))


def checked(timeline):
    out = io.BytesIO()
    write_chrome(timeline, out)
    return check_timeline(out.getvalue())


def named(page, name):
    (found,) = [event for event in page.of("X") if event["name"] == name]
    return found


def arrows(page):
    """Return {(from, to)} by the names of the slices, launches and transfers alike."""
    find = {}
    for event in page.of("X"):
        find.setdefault((event["pid"], event["tid"]), []).append(event)
    find = {thread: slice_finder(lane) for thread, lane in find.items()}
    begins, ends = ({event["id"]: event for event in page.of(phase)} for phase in "sf")
    at = lambda event: find[event["pid"], event["tid"]](ns(event["ts"]))["name"]  # noqa: E731
    return {(at(begins[number]), at(ends[number]), begins[number]["cat"]) for number in begins}


def counter(page, process, name):
    """Return [(us, value)] of a counter."""
    pid = next(pid for pid, shown in page.processes.items() if shown == process)
    return [
        (float(event["ts"]), float(*event["args"].values()))
        for event in page.of("C")
        if event["pid"] == pid and event["name"] == name
    ]


def test_each_device_is_a_process_hosts_first_and_lanes_go_from_host_to_copies_to_compute():
    page = drawn(load(two_gpu_step()))
    assert list(page.processes.values()) == ["tfplace: step0.pb", "CPU:0 (host)", "GPU:0 (device)", "GPU:1 (device)"]
    names = [name for (pid, _), name in sorted(page.threads.items()) if page.processes[pid] == "GPU:0 (device)"]
    assert names == ["launches", "copies H2D", "copies P2P", "stream 13 (compute)"]


def test_threads_have_their_names_without_the_number_that_tensorflow_adds():
    """The name stands once in the file, or with each device; of a thread without one its number tells."""
    names = {2: "tf_Compute/-4924526031051825574", 3: "py/thon", 4: ""}
    host = lane(CPU0, *(op(f"a{n}", "Const", start=n, duration=1, thread=n) for n in (2, 3, 4, 5)), threads=names)
    launch = lane(GPU0, op("b", "Add", start=9, duration=1, thread=2))
    trace = load(run_metadata(dev_stats=[host, launch]))
    assert trace.events["thread_name"].astype("object").tolist()[:2] == ["tf_Compute/-4924526031051825574", "py/thon"]
    assert trace.events["thread_name"].isna().tolist() == [False, False, True, True, False]
    page = drawn(trace)
    shown = {(page.processes[pid], name) for (pid, _), name in page.threads.items()}
    assert {
        ("CPU:0 (host)", "tf_Compute (thread 2)"),
        ("CPU:0 (host)", "py thon (thread 3)"),
        ("CPU:0 (host)", "thread 4"),
        ("CPU:0 (host)", "thread 5"),
        ("GPU:0 (device)", "launches by tf_Compute (thread 2)"),
    } <= shown


def test_a_copy_is_named_by_its_variable_and_says_what_it_moved():
    up = named(drawn(load(two_gpu_step())), "conv1/kernel, 2.4 MB")
    assert (ns(up["ts"]), ns(up["dur"]), up["cat"], up["cname"]) == (10_000, 10_000, "variable", "terrible")
    assert {key: str(value) for key, value in up["args"].items()} == {
        "tensor": "conv1/kernel",
        "variable": "conv1/kernel",
        "category": "variable",
        "bytes": "2400000",
        "direction": "H2D",
        "from": "CPU:0 (pageable)",
        "to": "GPU:0 (device)",
        "GB/s": "240.0",  # 2.4 MB in 10 us
        "not hidden behind kernels us": "10.0",
        "edge": "edge_1_conv1/kernel",
        "lane": "/device:GPU:0/stream:14",
        "recorded as": "edge_1_conv1/kernel:MEMCPYHtoD",
        "step": "1",
    }


def test_an_op_says_node_inputs_and_how_long_it_was_queued():
    trace = load(run_metadata(dev_stats=[lane(CPU0, op("a", "Const", start=0, duration=1),
        op("b", "Add", "a", "a", start=10, duration=5, scheduled=7))]))  # fmt: skip
    args = named(drawn(trace), "Add: b")["args"]
    assert {key: str(value) for key, value in args.items()} == {
        "kind": "op", "op": "Add", "node": "b", "inputs": "a, a", "queued us": "3", "step": "1",
    }  # fmt: skip


def test_arrows_lead_from_producer_to_copy_to_consumer_and_from_launch_to_kernel():
    assert arrows(drawn(load(two_gpu_step()))) == {
        ("VariableV2: conv1/kernel", "conv1/kernel, 2.4 MB", "transfer"),
        ("conv1/kernel, 2.4 MB", "Relu: y", "transfer"),
        ("Relu: y", "Relu: y", "launch"),
        ("Relu: y", "y, 2.4 MB", "transfer"),
        ("y, 2.4 MB", "Relu: z", "transfer"),
        ("Relu: z", "Relu: z", "launch"),
        ("Relu: z", "z, 2.4 MB", "transfer"),
        ("z, 2.4 MB", "Sum: loss", "transfer"),
    }


def test_the_arrow_into_a_copy_from_a_gpu_leaves_the_kernel_not_the_launch():
    page = drawn(load(two_gpu_step()))
    begin = next(e for e in page.of("s") if e["name"] == "y, 2.4 MB" and ns(e["ts"]) < 46_000)
    assert page.threads[begin["pid"], begin["tid"]] == "stream 13 (compute)"
    assert ns(begin["ts"]) == 44_999  # the kernel's last moment: it ends at 45 us


def test_an_arrow_that_would_go_back_in_time_is_left_out_and_counted():
    message = two_gpu_step()
    for device in message.step_stats.dev_stats:
        for event in device.node_stats:
            if event.node_name == "conv1/kernel":
                event.all_start_micros += 15  # the producer is said to begin after the copy of its value did
    timeline = timeline_of(load(message))
    assert ("VariableV2: conv1/kernel", "conv1/kernel, 2.4 MB", "transfer") not in arrows(checked(timeline))
    assert len(arrows(checked(timeline))) == 7


def test_bus_counters_are_each_copys_own_speed_added_up():
    page = drawn(load(two_gpu_step()))
    # 2.4 MB in 10 us are 240 GB/s; the peer copy's 4 us make 600 GB/s on the GPU whose lane carries it
    assert counter(page, "GPU:0 (device)", "bus H2D") == [(0, 0), (10, 240e9), (20, 0)]
    assert counter(page, "GPU:0 (device)", "bus P2P") == [(0, 0), (46, 600e9), (50, 0)]
    assert counter(page, "GPU:1 (device)", "bus D2H") == [(0, 0), (76, 600e9), (80, 0)]


def test_copies_at_the_same_time_add_up_and_those_without_a_size_are_named():
    copies = [
        copy("edge_1_a", "HtoD", 1000, start=0, duration=10),
        copy("edge_2_b", "HtoD", 4000, start=5, duration=10),
        copy("edge_3_c", "HtoD", 0, start=30, duration=5),
    ]
    copies[2].timeline_label = "MEMCPYHtoD"
    page = drawn(
        load(run_metadata(dev_stats=[lane(CPU0, op("a", "Const", start=0, duration=1)), *gpu_lanes(0, copies=copies)]))
    )
    assert counter(page, "GPU:0 (device)", "bus H2D, 1 of 3 copies not counted") == [
        (0, 100e6), (5, 500e6), (10, 400e6), (15, 0),
    ]  # fmt: skip
    assert named(page, "c, size not recorded")["args"]["direction"] == "H2D"


def test_busy_share_is_the_part_of_each_slot_with_a_kernel():
    page = drawn(load(two_gpu_step()))
    values = dict(counter(page, "GPU:0 (device)", "busy"))
    # the step lasts 95 us, a slot 0.475 us; the kernel runs from 25 to 45 us, 53 slots later at 24.7 us in part
    assert values[0] == 0
    assert max(values.values()) == 1
    assert min(at for at, value in values.items() if value > 0) == 24.7
    assert values[24.7] == pytest.approx((25.175 - 25) / 0.475, abs=1e-3)
    assert list(values.values())[-1] == 0


def test_a_cpu_that_plays_the_accelerator_is_named_so_and_its_edges_have_no_invented_time():
    edge = "edge_1_w"
    host = graph(CPU0, node("w", "VariableV2", dtype="float32", shape="[2,3]", _output_shapes=["[2,3]"]),
                 send(edge, "w", CPU0, CPU1))  # fmt: skip
    other = graph(CPU1, recv("w/_1", edge, CPU0, CPU1), node("y", "Relu", "w/_1", T="float32"))
    lanes = [lane(CPU0, op("w", "VariableV2", start=0, duration=5)), lane(CPU1, op("y", "Relu", start=8, duration=5))]
    page = drawn(load(run_metadata([host, other], lanes), accelerator="CPU:1"))
    assert "CPU:1 (a CPU as accelerator)" in page.processes.values()
    assert page.processes[1] == "tfplace: step0.pb (a CPU as accelerator)"
    named(page, "tfplace: step0.pb (CPU:1 plays the accelerator: times are a CPU's)")
    (missing,) = page.on(page.processes[1], "transfers without a time of their own")
    assert missing["name"] == "1 transfer in this step, copies were not timed: 1 H2D 24 B"
    assert missing["args"]["transfer 1"] == "H2D w, 24 B"
    assert (ns(missing["ts"]), ns(missing["dur"])) == (0, 13_000)  # the step, and no time within it
    assert not [name for name in page.threads.values() if name.startswith("copies")]
    assert page.of("C") == []  # neither bus nor busy: a CPU's are not a GPU's
    assert arrows(page) == {("VariableV2: w", "Relu: y", "transfer, not timed")}


def test_a_simulated_gpu_is_named_so_everywhere():
    page = drawn(replace(load(two_gpu_step()), simulated="2 GPUs of 16 GB"))
    title = "tfplace: step0.pb (simulated, 2 GPUs of 16 GB: times are not a GPU's)"
    assert list(page.processes.values()) == [
        "tfplace: step0.pb (simulated)",
        "CPU:0 (host)",
        "GPU:0 (simulated)",
        "GPU:1 (simulated)",
    ]
    assert named(page, title)["args"]["simulated"] == "2 GPUs of 16 GB"


def test_a_simulated_gpu_has_neither_bus_speeds_nor_a_busy_share():
    page = drawn(replace(load(two_gpu_step()), simulated="2 GPUs of 16 GB"))
    assert page.of("C") == []
    assert "GB/s" not in named(page, "conv1/kernel, 2.4 MB")["args"]


def test_a_trace_of_host_ops_only_says_so():
    page = drawn(load(run_metadata(dev_stats=[lane(CPU0, op("a", "Const", start=0, duration=1))])))
    (about,) = page.on(page.processes[1], "about this timeline")
    assert about["name"].endswith("(host times only, no GPU kernels or copies traced)")


def test_a_trace_without_times_is_refused():
    with pytest.raises(UsageError, match="no times"):
        timeline_of(load(run_metadata([graph(CPU0, node("a", "Const", dtype="float32"))])))


def test_several_steps_share_lanes_and_have_a_window_each():
    page = drawn(load(two_gpu_step(0), two_gpu_step(1)))
    assert len(page.threads) == len(drawn(load(two_gpu_step())).threads)
    windows = page.on(page.processes[1], "steps")
    assert [(w["name"], ns(w["ts"]), ns(w["dur"])) for w in windows] == [
        ("step 1", 0, 95_000), ("step 2", 100_000, 95_000),
    ]  # fmt: skip
    ups = [event for event in page.of("X") if event["name"] == "conv1/kernel, 2.4 MB"]
    assert [event["args"]["step"] for event in ups] == ["1", "2"]


def test_workers_have_processes_of_their_own():
    worker = "/job:worker/replica:0/task:{}/device:CPU:0"
    lanes = [lane(worker.format(task), op("a", "Const", start=task, duration=5)) for task in (0, 1)]
    page = drawn(load(run_metadata(dev_stats=lanes)))
    assert list(page.processes.values())[1:] == ["worker 0 CPU:0 (host)", "worker 1 CPU:0 (host)"]


def test_process_numbers_do_not_depend_on_what_is_drawn():
    whole = drawn(load(two_gpu_step()))
    trace = load(two_gpu_step())
    only_second = replace(trace, events=trace.events[trace.events["device_id"] == 2].assign(event_id=range(3)),
                          copies=trace.copies[trace.copies["device_id"] == 2].assign(event_id=[2]))  # fmt: skip
    part = drawn(replace(only_second, events=only_second.events.reset_index(drop=True)))
    for pid, name in part.processes.items():
        assert whole.processes[pid] == name


def test_a_finding_is_marked_where_its_subject_is_copied_and_not_where_no_time_is_known():
    subject = Finding("r", "warning", "10 MB a step", "why", "fix", subjects=("conv1/kernel",))
    elsewhere = Finding("r", "info", "elsewhere", "why", "fix", subjects=("no such node",))
    page = checked(build_timeline(analyze(load(two_gpu_step(0), two_gpu_step(1))), [subject, elsewhere]))
    assert [(ns(m["ts"]), m["name"], m["args"]["fix"]) for m in page.of("i")] == [
        (10_000, "10 MB a step", "fix"), (110_000, "10 MB a step", "fix"),
    ]  # fmt: skip
    assert {page.threads[m["pid"], m["tid"]] for m in page.of("i")} == {"findings"}


def test_a_copy_inside_an_op_hangs_on_that_ops_launch():
    copies = [copy("a:ConcatV2", "HtoD", 64, start=3, duration=1)]
    lanes = [lane(GPU0, op("a", "ConcatV2", start=0, duration=9)), *gpu_lanes(0, copies=copies)]
    page = drawn(load(run_metadata([graph(GPU0, node("a", "ConcatV2"))], lanes)))
    (inside,) = [event for event in page.of("X") if page.threads[event["pid"], event["tid"]] == "copies H2D"]
    assert inside["args"]["issued inside op"] == "ConcatV2"
    assert ("ConcatV2: a", inside["name"], "launch") in arrows(page)


def test_kernels_of_a_node_that_runs_twice_hang_on_the_nearest_launch_before():
    ops = [op("a", "Mul", start=0, duration=2), op("a", "Mul", start=20, duration=2)]
    kernels = [kernel("a", "Mul", start=5, duration=3), kernel("a", "Mul", start=25, duration=3)]
    lanes = [lane(GPU0, *ops), *gpu_lanes(0, kernels=kernels)]
    page = drawn(load(run_metadata([graph(GPU0, node("a", "Mul"))], lanes)))
    begins, ends = ({e["id"]: ns(e["ts"]) for e in page.of(phase)} for phase in "sf")
    assert sorted((begins[n], ends[n]) for n in begins) == [(1_999, 5_001), (21_999, 25_001)]


def test_devices_of_gpu1_without_a_name_still_get_a_lane():
    lanes = [lane("odd lane without a device", op("a", "Const", start=0, duration=1)), lane(GPU1)]
    page = drawn(load(run_metadata(dev_stats=lanes)))
    assert page.slices >= 2
