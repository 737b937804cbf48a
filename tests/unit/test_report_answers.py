"""The three direct answers: each sentence says what the trace shows, and 'cannot tell' where it shows nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pandas as pd
import pytest

from tests import report_samples as samples
from tfplace.analyze.study import analyze
from tfplace.model import schema
from tfplace.model.trace import Note
from tfplace.read.load import load_trace
from tfplace.report.answers import input_name
from tfplace.report.host_work import busy_threads
from tfplace.report.summary import summarize

TRACES = Path(__file__).parents[2] / "traces"


def answers(analysis=None):
    return summarize(analysis or samples.analysis(), []).answers


def transfers(**changes):
    return schema.conform("transfers", samples.transfers().assign(**changes))


# ---------------------------------------------------------------- is the CPU the bottleneck


def test_idle_gpu_without_cpu_times_is_not_guessed_at():
    # kernels 20-60 us of each step of 100 us; the input op runs 50-95 us, 35 us of that without a kernel, in one of two
    assert answers()["cpu_bottleneck"] == (
        "The trace cannot tell for sure: GPU:0 ran kernels in 40 % of the step (40.0 us of 100 us), and it does not "
        "hold CPU times of the process. While no kernel ran, the host was mostly in IteratorGetNext (17.5 us a step)."
    )


def test_a_busy_gpu_leaves_nothing_for_a_faster_cpu():
    assert answers(samples.analysis(gpu_busy_share=0.93))["cpu_bottleneck"] == (
        "Not in this step: GPU:0 ran kernels in 93 % of the step (93.0 us of 100 us). A faster host can gain little."
    )


@pytest.mark.parametrize(("share", "start"), [(0.8, "Not in this step"), (0.799, "The trace cannot tell for sure")])
def test_busy_means_four_fifths_of_the_step(share, start):
    assert answers(samples.analysis(gpu_busy_share=share))["cpu_bottleneck"].startswith(start)


def test_process_cpu_time_is_told_as_cores():
    timed = samples.steps()
    timed["cpu_time_ns"] = pd.array([180_000, 200_000], dtype="Int64")  # of 100 us each: 1.9 cores
    answer = answers(samples.analysis(samples.trace(steps=timed)))["cpu_bottleneck"]
    assert "; meanwhile the process used 1.9 CPU cores, and it does not hold which threads were busy." in answer


def captured(**threads):
    """Two steps of 100 us; CPU time is that of each."""
    timed = samples.steps()
    timed["step_num"] = pd.array([2, 3], dtype="Int64")
    timed["cpu_time_ns"] = pd.array([180_000, 200_000], dtype="Int64")
    stored = [{"num": 2, "threads": threads}, {"num": 3, "threads": threads}, {"num": 4, "threads": {"other": 10**9}}]
    return samples.trace(steps=timed, context={"steps": stored})


THREADS = {"python:MainThread": 92_000, "tf_Compute": 148_000, "tf_data": 20_400, "idle": 100}


def test_the_busiest_three_threads_are_named_with_their_share_of_the_step():
    trace = captured(**THREADS)
    assert answers(samples.analysis(trace))["cpu_bottleneck"].startswith(
        "The trace cannot tell for sure: GPU:0 ran kernels in 40 % of the step (40.0 us of 100 us); meanwhile the "
        "process used 1.9 CPU cores, CPU time by thread name, as a share of the step: tf_Compute 148 %, "
        "python:MainThread 92 % and tf_data 20 %, and whether a busy thread works or only spins"
    )
    assert "does not hold" not in answers(samples.analysis(trace))["cpu_bottleneck"]
    assert "tf_Compute 148 %" in answers(samples.analysis(trace, gpu_busy_share=0.93))["cpu_bottleneck"]
    untimed = samples.analysis(dataclasses.replace(trace, has_device_times=False), gpu_busy_share=None)
    assert "In the step the process used 1.9 CPU cores" in answers(untimed)["cpu_bottleneck"]


@pytest.mark.parametrize(
    "stored", [None, 7, [None], [{"num": 2, "threads": None}], [{"num": 2, "threads": {"a": "x"}}]]
)
def test_threads_that_are_not_stored_are_said_to_be_missing(stored):
    trace = dataclasses.replace(captured(), context={"steps": stored})
    assert "does not hold which threads were busy" in answers(samples.analysis(trace))["cpu_bottleneck"]


def test_threads_of_a_captured_file_are_read():
    trace = load_trace([str(TRACES / "cifar10_function_weights_on_gpu.pb")])
    assert busy_threads(analyze(trace))[0][0] == "python"


@pytest.mark.parametrize(
    "trace",
    [samples.trace(simulated="1 simulated GPU"), samples.trace(devices=samples.devices(kind="CPU", model=None))],
    ids=["simulated", "CPU plays the accelerator"],
)
def test_stand_in_gpus_have_no_times(trace):
    answer = answers(samples.analysis(trace))["cpu_bottleneck"]
    assert answer == "The trace cannot tell: it has no GPU times."


def test_missing_kernel_times_are_named():
    without = answers(samples.analysis(samples.trace(has_device_times=False), gpu_busy_share=None))["cpu_bottleneck"]
    assert without.startswith("The trace cannot tell: it has no GPU times. Capture")
    copies_only = answers(samples.analysis(gpu_busy_share=None))["cpu_bottleneck"]
    assert copies_only.startswith("The trace cannot tell: it has no kernel times. Capture")


def test_without_an_accelerator_the_work_is_the_hosts():
    host_only = samples.trace(devices=samples.devices(kind="CPU", role="host", model=None))
    got = answers(samples.analysis(host_only, transfers=schema.empty("transfers")))
    assert got["cpu_bottleneck"] == "The trace has no accelerator: all the work that it shows is the host's."
    assert got["weights_copied"] == got["input_copied"] == "The trace has no accelerator, so nothing is copied to one."


# ---------------------------------------------------------------- are weights copied


def test_copied_weights_are_counted_once_per_step_and_gpu():
    assert answers()["weights_copied"] == (
        "Yes: 1 variable, 4.0 kB, once per step and GPU (not once per use), to GPU:0."
    )


def test_copied_weights_of_inference_are_copied_at_every_call():
    quiet = samples.analysis(variables=samples.variables(writers=(), written_bytes_per_step=0))
    assert answers(quiet)["weights_copied"].endswith("reads them (inference): every call copies them again.")


def test_weights_copied_more_than_once_a_step_are_not_called_once():
    twice = pd.concat([samples.transfers(), samples.transfers().iloc[[0, 1]].assign(edge_name="edge_9_other")])
    twice = schema.conform("transfers", twice.assign(transfer_id=range(len(twice))))
    assert "up to 2 copies of one in a step, to GPU:0" in answers(samples.analysis(transfers=twice))["weights_copied"]


def test_rows_of_a_table_are_not_the_table():
    table = samples.variables(num_bytes=51_200_000, read_bytes_per_step=12_800, rows_only=True, copied_each_step=False)
    assert answers(samples.analysis(variables=table))["weights_copied"] == (
        "Only rows: of 1 table (51.2 MB) 12.8 kB cross in each step, not the whole."
    )


def test_weights_on_the_gpu_are_not_copied():
    there = samples.variables(device_id=samples.GPU, verdict="on-device", copied_each_step=False, read_bytes_per_step=0)
    assert answers(samples.analysis(variables=there))["weights_copied"] == (
        "No: the one variable (4.0 kB) is on GPU:0."
    )


def test_weights_in_two_places_are_told_apart():
    there = samples.variables(device_id=samples.GPU, verdict="on-device", copied_each_step=False, read_bytes_per_step=0)
    here = samples.variables(verdict="harmless", copied_each_step=False, name="step")
    both = schema.conform("variables", pd.concat([there, here]).assign(variable_id=[0, 1]))
    answer = answers(samples.analysis(variables=both))["weights_copied"]
    assert answer == "No: 1 variable (4.0 kB) on GPU:0; 1 other never crosses."


def test_a_value_that_goes_from_the_gpu_to_the_host_is_no_copied_weight():
    counter = samples.variables(device_id=samples.GPU, verdict="on-device", read_bytes_per_step=8)
    assert answers(samples.analysis(variables=counter))["weights_copied"] == (
        "No: the one variable (4.0 kB) is on GPU:0. Its value is read elsewhere: 8 B a step."
    )


def test_what_the_trace_cannot_tell_of_weights_is_said():
    dark = samples.variables(copied_each_step=pd.NA, verdict="unknown", reason="no partition graphs")
    assert answers(samples.analysis(variables=dark))["weights_copied"] == (
        "The trace cannot tell for 1 of 1 variable: no partition graphs."
    )


def test_constants_that_cross_are_told_where_there_are_no_variables():
    rest = transfers(variable_id=pd.NA)
    answer = answers(samples.analysis(variables=schema.empty("variables"), transfers=rest))["weights_copied"]
    assert answer == "The step has no variables; 1 constant (4 B) crosses to the accelerator in each step."


def test_frozen_weights_on_the_gpu_stay_there():
    frozen = samples.nodes()
    frozen.loc[samples.CONV, "op"] = "Const"
    outputs = pd.DataFrame(
        {"node_id": [samples.CONV], "slot": [0], "num_bytes": [4000], "evidence": ["const"], "dtype": ["float32"]}
    )
    trace = samples.trace(nodes=frozen, outputs=schema.conform("outputs", outputs))
    quiet = samples.analysis(trace, variables=schema.empty("variables"), transfers=schema.empty("transfers"))
    assert answers(quiet)["weights_copied"] == (
        "No: the step has no variables; 1 constant (4.0 kB) stays on the accelerator."
    )


def test_no_variables_and_no_graphs_is_not_a_no():
    dark = samples.analysis(
        samples.trace(has_graphs=False), variables=schema.empty("variables"), transfers=schema.empty("transfers")
    )
    assert answers(dark)["weights_copied"].startswith("The trace cannot tell")


# ---------------------------------------------------------------- when is the input copied


def test_input_is_told_with_bytes_moment_memory_and_reader():
    # at 2 us and 3 us after the steps' starts
    assert answers()["input_copied"] == (
        'In each step, before its first use: the feed "images", 1.2 kB, to GPU:0, 2.50 us after the step\'s start, '
        'from pageable memory, for Conv2D "train/conv" and 1 more.'
    )


def test_input_on_a_stand_in_gpu_has_no_moment():
    answer = answers(samples.analysis(samples.trace(simulated="1 simulated GPU")))["input_copied"]
    assert "after the step's start" not in answer


def test_without_input_copies_the_answer_is_no():
    rest = samples.transfers()
    rest = rest[rest["category"] != "input"]
    assert answers(samples.analysis(transfers=rest))["input_copied"] == (
        "Not in the step: no feed, argument or dataset element is copied to the accelerator in it."
    )


def test_nameless_copies_may_be_the_input():
    rest = samples.transfers()
    rest = rest[rest["category"] != "control"].assign(category="unknown", producer_node_id=pd.NA)
    answer = answers(samples.analysis(transfers=schema.conform("transfers", rest)))["input_copied"]
    assert answer == "The trace cannot tell: what 3 copies a step to the accelerator carry is not recorded."


def test_blind_traces_cannot_tell_of_input():
    dark = samples.analysis(samples.trace(has_graphs=False), transfers=schema.empty("transfers"))
    assert answers(dark)["input_copied"] == "The trace cannot tell: it has neither partition graphs nor copies."


@pytest.mark.parametrize(
    ("producer", "op", "said"),
    [
        ("_arg_images_0_0", "_Arg", 'the feed "images"'),
        ("x", "Placeholder", 'the feed "x"'),
        ("args_0", "_Arg", 'the argument "args_0"'),
        ("IteratorGetNext", "IteratorGetNext", 'the dataset element "IteratorGetNext"'),
        ("next_1", "IteratorGetNext", 'the dataset element "next_1"'),
        ("batch", "QueueDequeueManyV2", '"batch" (QueueDequeueManyV2)'),
        (None, None, '"t:0"'),
    ],
)
def test_inputs_are_called_what_people_call_them(producer, op, said):
    assert input_name({"producer": producer, "producer_op": op, "tensor": "t:0"}) == said


def test_two_outputs_of_one_iterator_are_told_apart():
    rows = [{"producer": "next", "producer_op": "IteratorGetNext", "tensor": tensor} for tensor in ("next", "next:1")]
    assert [input_name(row) for row in rows] == ['the dataset element "next"', 'the dataset element "next:1"']


@pytest.mark.parametrize("nameless", [True, False])
def test_batches_of_an_iterator_on_the_gpu_are_copied_ahead(nameless):
    nodes = samples.nodes()
    nodes.loc[samples.ITERATOR, "device_id"] = samples.GPU
    rest = samples.transfers()
    rest = rest[~rest["category"].isin(["control", "input"])]
    if nameless:
        rest = rest.assign(category="unknown", producer_node_id=pd.NA)
    made = samples.analysis(samples.trace(nodes=nodes), transfers=schema.conform("transfers", rest))
    unknown = " Which of the copies in the step carry one is not recorded." if nameless else ""
    assert answers(made)["input_copied"] == (
        f'Ahead of the step: the iterator ("next") is on GPU:0, so batches are copied there early.{unknown}'
    )


def test_what_a_cut_file_does_not_show_is_not_denied():
    """The variable that was read is on the GPU; what follows may hold one that is not."""
    there = {"verdict": "on-device", "device_id": samples.GPU, "copied_each_step": False, "read_bytes_per_step": 0}
    variables = samples.variables(**there, destinations=(), destination_bytes=())
    cut = samples.trace(notes=(Note("truncated", "t.pb breaks off at byte 9."),))
    assert answers(samples.analysis(variables=variables))["weights_copied"].startswith("No: the one variable")
    assert answers(samples.analysis(cut, variables=variables))["weights_copied"] == (
        "The trace cannot tell, since the file breaks off. In what was read, no: the one variable (4.0 kB) is on GPU:0."
    )
