"""feed-copied, whole-dataset-fed, input-not-staged, pageable-copy, prefetch-ineffective, staging-misuse."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from tests.builders import CPU0, GPU0, copy, kernel, node, output
from tests.unit.rules_support import crossing, finding, outcome, step, study, weights


def fed(
    op: str = "_Arg", name: str = "_arg_images_0_0", *, reader: str = "MatMul", T: str = "float32", **attrs: Any
) -> Any:
    """An input on the host that one op of the GPU reads."""
    out, into = crossing(f"edge_1_{name}", name, CPU0, GPU0, T=T, tensor_type=T)
    return {
        CPU0: [node(name, op, T=T, **attrs), out],
        GPU0: [into, node("y", reader, into.name, into.name, T=T)],
    }


def sized(name: str, op: str, num_bytes: int) -> list[Any]:
    return [(name, op, output(0, "float32", f"[{num_bytes // 4}]", num_bytes))]


IMAGES = "_arg_images_0_0"

# ---------------------------------------------------------------- feed-copied


def test_a_feed_is_named_as_the_program_names_it() -> None:
    one = finding("feed-copied", study(step(fed(), outputs=sized(IMAGES, "_Arg", 1_200_000))))
    assert one.title == "1 feed (images) is copied to GPU:0 in every step: 1.2 MB a step."
    assert (one.bytes_per_step, one.cost_ns_per_step) == (1_200_000, 100_000)
    assert "in 1 piece" in one.detail and "First used by y (MatMul)" in one.detail
    assert one.subjects == (IMAGES,)


@pytest.mark.parametrize(("size", "result"), [(100_000, "found"), (99_996, "clear")])
def test_untimed_feeds_count_from_a_hundred_kilobytes(size: int, result: str) -> None:
    assert outcome("feed-copied", study(step(fed(), outputs=sized(IMAGES, "_Arg", size)))).outcome == result


def timed_feed(duration: int, *, length: int = 1000, op: str = "_Arg", name: str = IMAGES, memory: str = "") -> Any:
    copies = [copy(f"edge_1_{name}", "HtoD", 50_000, start=10, duration=duration, memory=memory)]
    kernels = [kernel("y", "MatMul", start=10 + duration, duration=10)]
    return study(step(fed(op, name), length=length, copies=copies, kernels=kernels))


@pytest.mark.parametrize(("duration", "result"), [(50, "found"), (49, "clear")])
def test_timed_feeds_count_from_five_percent_of_the_step(duration: int, result: str) -> None:
    assert outcome("feed-copied", timed_feed(duration)).outcome == result


def test_three_steps_are_one_feed_with_figures_per_step() -> None:
    message = step(fed(), length=1000, outputs=sized(IMAGES, "_Arg", 1_200_000))
    one = finding("feed-copied", study(message, message, message))
    assert one.bytes_per_step == 1_200_000
    assert "times a step" not in one.evidence[0]


def test_an_input_pipeline_is_not_a_feed() -> None:
    analysis = study(step(fed("IteratorGetNext", "next"), outputs=sized("next", "IteratorGetNext", 1_200_000)))
    assert outcome("feed-copied", analysis).outcome == "clear"


def test_feeds_need_something_that_shows_copies() -> None:
    times_only = study(step({}, length=100, kernels=[kernel("y", "Relu", start=1, duration=1)]))
    for slug in ("feed-copied", "whole-dataset-fed", "input-not-staged", "pageable-copy"):
        assert outcome(slug, times_only).outcome == "skipped"


# ---------------------------------------------------------------- whole-dataset-fed


def dataset(whole: int, part: int, *, reader: str = "GatherV2", also: Sequence[Any] = ()) -> Any:
    partitions = fed(reader=reader)
    partitions[GPU0] += also
    sizes = {"outputs": sized(IMAGES, "_Arg", whole), "gpu_outputs": sized("y", reader, part)}
    return study(step(partitions, length=100_000, **sizes))


def test_a_fed_data_set_of_which_a_batch_is_gathered_is_reported() -> None:
    one = finding("whole-dataset-fed", dataset(48_000_000, 480_000))
    assert one.title == "images (48.0 MB) is fed whole in every step, but the step uses 480 kB of it (1.0%)."
    assert (one.cost_ns_per_step, one.bytes_per_step, one.severity) == (4_000_000, 48_000_000, "warning")  # 4 %
    assert "In 1,000 steps that is 48.0 GB." in one.detail


@pytest.mark.parametrize(
    ("whole", "part", "result"),
    [
        (32_000_000, 3_199_996, "found"),
        (32_000_000, 3_200_000, "clear"),  # a tenth
        (31_999_996, 40, "clear"),
    ],
)
def test_a_batch_is_not_a_data_set(whole: int, part: int, result: str) -> None:
    assert outcome("whole-dataset-fed", dataset(whole, part)).outcome == result


def test_a_feed_that_something_reads_whole_is_not_wasted() -> None:
    whole_reader = node("z", "MatMul", f"edge_1_{IMAGES}/_recv", T="float32")
    assert outcome("whole-dataset-fed", dataset(48_000_000, 40, also=[whole_reader])).outcome == "clear"
    assert outcome("whole-dataset-fed", dataset(48_000_000, 40, reader="MatMul")).outcome == "clear"


@pytest.mark.parametrize(("second", "result"), [(48_000_000, "found"), (48_000_004, "clear")])
def test_another_size_in_each_step_is_a_batch(second: int, result: str) -> None:
    messages = [
        step(
            fed(reader="Slice"),
            gpu_outputs=sized("y", "Slice", 40),
            copies=[copy(f"edge_1_{IMAGES}", "HtoD", size, start=1, duration=1)],
        )
        for size in (48_000_000, second)
    ]
    assert outcome("whole-dataset-fed", study(*messages)).outcome == result


# ---------------------------------------------------------------- input-not-staged


def test_a_batch_that_is_copied_inside_the_step_is_reported() -> None:
    analysis = study(step(fed("IteratorGetNext", "next"), outputs=sized("next", "IteratorGetNext", 1_200_000)))
    one = finding("input-not-staged", analysis)
    assert one.title == "The input (next) is copied to GPU:0 inside every step: 1.2 MB a step."
    assert "Whether kernels hide it, this trace cannot tell." in one.detail
    assert one.cost_ns_per_step == 100_000


@pytest.mark.parametrize(("duration", "result"), [(30, "found"), (29, "clear")])
def test_a_batch_counts_from_three_percent_of_the_step(duration: int, result: str) -> None:
    assert outcome("input-not-staged", timed_feed(duration, op="IteratorGetNext", name="next")).outcome == result


def test_what_kernels_hide_of_the_input_is_told() -> None:
    copies = [copy("edge_1_next", "HtoD", 1_200_000, start=0, duration=100)]
    kernels = [kernel("y", "MatMul", start=40, duration=500)]
    message = step(fed("IteratorGetNext", "next"), length=1000, copies=copies, kernels=kernels)
    one = finding("input-not-staged", study(message))
    assert one.cost_ns_per_step == 40_000
    assert "Kernels hide 60% of it." in one.detail


def test_a_feed_is_not_an_input_pipeline() -> None:
    analysis = study(step(fed(), outputs=sized(IMAGES, "_Arg", 1_200_000)))
    assert outcome("input-not-staged", analysis).outcome == "clear"


@pytest.mark.parametrize(("rule", "op"), [("feed-copied", "_Arg"), ("input-not-staged", "IteratorGetNext")])
def test_input_below_the_limit_is_clear_with_its_size(rule: str, op: str) -> None:
    name = IMAGES if op == "_Arg" else "next"
    little = outcome(rule, study(step(fed(op, name), outputs=sized(name, op, 40_000))))
    assert (little.outcome, little.reason) == ("clear", "40.0 kB a step, below the limit of 100 kB")
    nothing = outcome(rule, study(step({CPU0: [node("a", "NoOp")], GPU0: [node("y", "Neg", T="float32")]})))
    assert (nothing.outcome, nothing.reason) == ("clear", None)


def test_timed_input_below_the_limit_is_clear_with_its_share() -> None:
    assert outcome("feed-copied", timed_feed(49)).reason == "4.9% of the step not hidden, below the limit of 5%"


# ---------------------------------------------------------------- pageable-copy


def kinds(*rows: tuple[str, int, int, str], kernels: Sequence[Any] | None = None) -> Any:
    """Copies of (edge, bytes, us, memory); the kernel that makes exposure known comes last."""
    start, copies = 0, []
    for edge, size, duration, memory in rows:
        copies.append(copy(edge, "HtoD", size, start=start, duration=duration, memory=memory))
        start += duration
    late = [kernel("y", "MatMul", start=start, duration=10)]
    return study(step(fed(), length=10_000, copies=copies, kernels=late if kernels is None else kernels))


SLOW = (f"edge_1_{IMAGES}", 4_000_000, 1000, "Pageable to Device")  # 4 GB/s
FAST = ("edge_9_x", 10_000_000, 1000, "Pinned to Device")  # 10 GB/s


def test_slow_pageable_copies_are_compared_with_the_best_pinned_copy() -> None:
    one = finding("pageable-copy", kinds(SLOW, FAST))
    assert one.title == "1 large copy a step uses pageable host memory: 4.0 MB a step, at 4.0 GB/s."
    assert one.cost_ns_per_step == pytest.approx(1_000_000 - 400_000)  # 4 MB at 10 GB/s would take 0.4 ms
    assert one.cost_basis == "estimated"
    assert "the best pinned copy here reached 10.0 GB/s" in one.detail
    assert one.bytes_per_step == 4_000_000


@pytest.mark.parametrize(
    ("category", "cure"),
    [
        ("variable", "pinning is no cure; put the variable on the GPU"),
        ("input", "let tf.data make the batch"),
        ("constant", "make each a `tf.Variable(value, trainable=False)`"),
        ("gradient", "put the variable that they update on the GPU"),
        ("fetch", "fetch fewer of them"),
        ("activation", "run both ends of the copy on the GPU"),
        ("shape", "run both ends of the copy on the GPU"),
        ("unknown", "what it carries is not recorded"),
    ],
)
def test_pageable_memory_has_a_cure_for_each_kind_of_value(category: str, cure: str) -> None:
    analysis = kinds(SLOW)
    analysis = dataclasses.replace(analysis, transfers=analysis.transfers.assign(category=category))
    fix = finding("pageable-copy", analysis).fix
    assert fix.startswith(f"{cure[0].upper()}{cure[1:]}")
    assert ("tf.data" in fix) == (category == "input")


def test_weights_and_input_in_pageable_memory_are_told_apart_the_larger_first() -> None:
    partitions = fed()
    home = weights("[2000,1000]")
    for device, nodes in home.items():
        partitions.setdefault(device, []).extend(n for n in nodes if n.name != "y0")
    copies = [
        copy(f"edge_1_{IMAGES}", "HtoD", 4_000_000, start=0, duration=1000, memory="Pageable to Device"),
        copy("edge_0_w/read", "HtoD", 8_000_000, start=1000, duration=2000, memory="Pageable to Device"),
    ]
    late = [kernel("y", "MatMul", start=3000, duration=10)]
    one = finding("pageable-copy", study(step(partitions, length=10_000, copies=copies, kernels=late)))
    assert one.fix.startswith("Weights: pinning is no cure; ")
    assert " Input: let tf.data " in one.fix


def test_without_a_pinned_copy_the_stated_bus_is_the_yardstick() -> None:
    one = finding("pageable-copy", kinds(SLOW))
    assert one.cost_ns_per_step == pytest.approx(1_000_000 - 4_000_000 / 12)
    assert "a bus of 12 GB/s is assumed" in one.detail


def test_pageable_copies_that_are_fast_or_small_or_hidden_are_clear() -> None:
    fast = (f"edge_1_{IMAGES}", 12_500_000, 1000, "Pageable to Device")
    assert outcome("pageable-copy", kinds(fast)).outcome == "clear"
    small = (f"edge_1_{IMAGES}", 255_999, 1000, "Pageable to Device")
    assert outcome("pageable-copy", kinds(small)).outcome == "clear"
    just = (f"edge_1_{IMAGES}", 256_000, 1000, "Pageable to Device")
    assert outcome("pageable-copy", kinds(just)).outcome == "found"
    hidden = kinds((f"edge_1_{IMAGES}", 7_000_000, 1000, "Pageable to Device"), FAST,
                   kernels=[kernel("y", "MatMul", start=0, duration=501)])  # fmt: skip
    assert outcome("pageable-copy", hidden).outcome == "clear"  # 7 of 10 GB/s, and 501 of 1000 us under a kernel


def test_a_slow_copy_that_kernels_hide_costs_only_what_they_leave() -> None:
    mostly = [kernel("y", "MatMul", start=0, duration=900)]
    assert finding("pageable-copy", kinds(SLOW, FAST, kernels=mostly)).cost_ns_per_step == 100_000


def test_memory_kinds_that_were_not_recorded_are_a_skip() -> None:
    result = outcome("pageable-copy", kinds((f"edge_1_{IMAGES}", 4_000_000, 1000, "")))
    assert result.outcome == "skipped"
    assert "pinned or pageable" in str(result.reason)


# ---------------------------------------------------------------- prefetch-ineffective


def staged(*, exposed: int | None = None, after: bool = False, generator: bool = False) -> Any:
    """An iterator on the GPU; its copies have no edge in this graph."""
    partitions: dict[str, Any] = {
        CPU0: [node("n", "NoOp")],
        GPU0: [node("next", "IteratorGetNext"), node("y", "Relu", "next")],
    }
    if generator:
        partitions[CPU0].append(node("made", "GeneratorDataset"))
    if after:
        down, into = crossing("edge_1_copied", "copied", GPU0, CPU0, T="variant", tensor_type="variant")
        partitions[GPU0] += [node("copied", "GeneratorDataset"), down]
        partitions[CPU0] += [into, node("batch", "BatchDatasetV2", into.name)]
    copies = [] if exposed is None else [copy("edge_77_Input", "HtoD", 1_000_000, start=0, duration=exposed)]
    kernels = [] if exposed is None else [kernel("y", "Relu", start=exposed, duration=10)]
    return study(step(partitions, length=1000, copies=copies, kernels=kernels))


@pytest.mark.parametrize(("exposed", "result"), [(30, "found"), (29, "clear")])
def test_a_staged_input_should_hide_its_copies(exposed: int, result: str) -> None:
    assert outcome("prefetch-ineffective", staged(exposed=exposed)).outcome == result


def test_the_exposed_copies_of_a_staged_input_are_its_cost() -> None:
    one = finding("prefetch-ineffective", staged(exposed=60))
    assert one.title == "The input is prefetched to GPU:0, but 1 thing keeps it from helping."
    assert (one.cost_ns_per_step, one.severity) == (60_000, "warning")
    assert "6% of the step is input copies with no kernel beside them" in one.detail


def test_a_dataset_on_the_host_after_the_copy_undoes_it() -> None:
    one = finding("prefetch-ineffective", staged(after=True, generator=True))
    assert "dataset batch (BatchDatasetV2) on the host comes after the copy to the GPU" in one.detail
    assert "the generator made (GeneratorDataset) makes the data in Python" in one.detail
    assert "but 2 things keep it" in one.title


def test_an_input_that_is_not_staged_is_clear_and_one_without_times_a_skip() -> None:
    assert outcome("prefetch-ineffective", study(step(fed("IteratorGetNext", "next")))).outcome == "clear"
    result = outcome("prefetch-ineffective", staged())
    assert (result.outcome, "neither its dataset nor the time of its copies" in str(result.reason)) == ("skipped", True)


# ---------------------------------------------------------------- staging-misuse


def staging(*, source: str = "_Arg", waits: bool = False, other_area: bool = False) -> Any:
    out, into = crossing("edge_1_x", "x", CPU0, GPU0)
    control = ["^put"] if waits else []
    area = {"shared_name": "area", "container": ""}
    return study(
        step(
            {
                CPU0: [node("x", source, T="float32"), out],
                GPU0: [
                    into,
                    node("same", "Identity", into.name, T="float32"),
                    node("put", "Stage", "same", **area),
                    node("get", "Unstage", *control, **{**area, "shared_name": "b"} if other_area else area),
                    node("y", "Relu", "get"),
                ],
            },
            outputs=sized("x", source, 1_200_000),
        )
    )


def test_a_put_that_is_fed_in_the_same_run_gains_nothing() -> None:
    one = finding("staging-misuse", staging())
    assert one.title == "The staging area put on GPU:0 gains nothing: 1 reason."
    assert "its value is fed in the same run (x (_Arg))" in one.detail
    assert one.evidence[0] == "x (_Arg) -> put (Stage)"


def test_a_get_that_waits_for_the_put_of_the_same_step_gains_nothing() -> None:
    one = finding("staging-misuse", staging(source="IteratorGetNext", waits=True))
    assert "get (Unstage) waits for it in the same step" in one.detail


def test_a_staging_area_filled_ahead_from_a_pipeline_is_clear() -> None:
    assert outcome("staging-misuse", staging(source="IteratorGetNext")).outcome == "clear"
    assert outcome("staging-misuse", staging(source="IteratorGetNext", waits=True, other_area=True)).outcome == "clear"
    assert outcome("staging-misuse", study(step(weights()))).outcome == "clear"


def test_staging_needs_a_graph() -> None:
    assert outcome("staging-misuse", study(step({}))).outcome == "skipped"
