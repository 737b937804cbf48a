"""Every number a rule compares with: unit, default, why, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field


def _threshold(default: float, unit: str, reason: str, source: str) -> float:
    value: float = field(default=default, metadata={"unit": unit, "reason": reason, "source": source})
    return value


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of all rules. `dataclasses.fields` carries unit, reason and source as metadata."""

    bus_gbps: float = _threshold(
        12.0, "GB/s", "PCIe 3.0 x16, pinned host memory", "12.2 GB/s seen in TensorFlow issue 5902"
    )
    pageable_gbps: float = _threshold(
        4.0, "GB/s", "pageable host memory goes through a staging buffer", "about a third of pinned on the same bus"
    )
    round_trip_us: float = _threshold(
        50.0,
        "us",
        "what one trip down and up costs besides its bytes: two small copies, the host op, and the GPU's wait",
        "99 to 200 us, median 126 us, for the nine trips of TensorFlow issue 7251, traced in 2017; half of the least",
    )
    copy_latency_us: float = _threshold(
        10.0, "us", "launch and completion of one copy, however small", "a CUDA copy call costs 5 to 10 us on the host"
    )
    warning_share: float = _threshold(
        0.01, "share of the step", "below 1 % of a step a change is lost in the noise", "run-to-run noise of training"
    )
    error_share: float = _threshold(
        0.20, "share of the step", "a fifth of every step", "the level that other profilers call high"
    )
    warning_ms: float = _threshold(
        0.08, "ms per step", "used where the step's length is unknown", "1 MB at 12 GB/s takes 0.083 ms"
    )
    error_ms: float = _threshold(
        10.0, "ms per step", "used where the step's length is unknown", "a tenth of a 100 ms step, a long one"
    )
    variable_bytes: float = _threshold(
        1e6, "bytes per step", "below it, copied weights cost less than 0.1 ms", "1 MB at 12 GB/s takes 0.083 ms"
    )
    constant_bytes: float = _threshold(
        1e6, "bytes", "smaller constants cost less than 0.1 ms", "1 MB at 12 GB/s takes 0.083 ms"
    )
    dataset_bytes: float = _threshold(
        32e6, "bytes", "larger than a batch usually is", "TensorFlow issue 6019 fed 50 MB in each step"
    )
    dataset_part_share: float = _threshold(
        0.1, "share of the fed bytes", "a step that uses less than a tenth was fed a dataset, not a batch", "judgement"
    )
    fetch_bytes: float = _threshold(
        1e6, "bytes per step", "scalars cost a wait, not bytes; megabytes cost both", "1 MB at 12 GB/s takes 0.083 ms"
    )
    feed_exposed_share: float = _threshold(
        0.05, "share of the step", "feeding is the step's cost only when nothing hides it", "judgement"
    )
    input_exposed_share: float = _threshold(
        0.03, "share of the step", "what staging the input ahead could save", "judgement"
    )
    untimed_input_bytes: float = _threshold(
        100e3, "bytes per step", "where nothing was timed, a smaller input is not worth a word", "8 us at 12 GB/s"
    )
    pageable_bytes: float = _threshold(
        256e3, "bytes", "below it, latency rules and pinned memory gains little", "the driver's staging buffers"
    )
    pageable_speed_share: float = _threshold(
        0.6, "share of the best pinned GB/s seen", "pageable copies reach about a third", "pageable_gbps / bus_gbps"
    )
    pageable_exposed_share: float = _threshold(
        0.5,
        "share of the copy's time",
        "a pageable copy that kernels hide for the most part costs nothing",
        "judgement",
    )
    pageable_saving_share: float = _threshold(
        0.001, "share of the step", "a smaller saving is not worth a line", "a tenth of warning_share"
    )
    exposed_moderate_share: float = _threshold(
        0.10, "share of the step", "a tenth of each step is copying alone", "judgement"
    )
    exposed_high_share: float = _threshold(
        0.20, "share of the step", "a fifth of each step is copying alone", "the level that other profilers call high"
    )
    tiny_count: float = _threshold(50, "copies per step", "fewer cannot add up to much", "50 x 10 us = 0.5 ms")
    tiny_bytes: float = _threshold(
        4e3, "bytes, median", "a 4 kB copy takes 0.3 us on the bus and 10 us to launch", "bus_gbps, copy_latency_us"
    )
    tiny_share: float = _threshold(0.03, "share of the step", "what packing them could save", "judgement")
    tiny_gap_us: float = _threshold(
        20.0, "us", "at most this much idle time after a copy is booked on the copy", "twice copy_latency_us"
    )
    prefetch_exposed_share: float = _threshold(
        0.03, "share of the step", "input already staged on the GPU should hide its copies", "input_exposed_share"
    )
    island_nodes: float = _threshold(
        50, "nodes", "more than this is a part of the model that lives on the host, not a detour", "judgement"
    )
    loop_repeats: float = _threshold(
        2, "copies of one edge per step", "outside a loop an edge runs once", "executor.cc"
    )
    unknown_size_share: float = _threshold(
        0.10, "share of the copies", "byte totals are a lower bound beyond this", "judgement"
    )
    overhead_share: float = _threshold(
        0.20, "share of an untraced step", "times of a step that tracing stretched by a fifth mislead", "judgement"
    )
