"""Times: nanoseconds where they are, one clock for all lanes, nothing clamped in silence."""

from tests.builders import CPU0, EPOCH_US, GPU0, GPU1, copy, gpu_lanes, kernel, lane, load, op, rows, run_metadata, stat

DAY_US = 86_400_000_000


def notes(trace):
    return {note.slug: note for note in trace.notes}


def times(trace, kind=None):
    events = trace.events if kind is None else trace.events[trace.events["kind"] == kind]
    return rows(events, "name", "start_ns", "end_ns", "scheduled_ns")


def host(*runs):
    return lane(GPU0, *runs)


def test_times_count_from_the_first_event_and_prefer_nanoseconds():
    trace = load(
        run_metadata(
            dev_stats=[
                lane(
                    CPU0,
                    stat("a", 10.25, 1.5, "", scheduled=9, nanos=True),
                    stat("b", 12, 2, "", scheduled=11),
                    stat("c", 20, 0.25, "", nanos=True),
                )
            ]
        )
    )
    assert times(trace) == [("a", 0, 1_500, -1_250), ("b", 1_750, 3_750, 750), ("c", 9_750, 10_000, None)]
    assert "clock-rebased" not in notes(trace)


def test_the_length_is_the_whole_run_and_the_op_alone_where_that_is_all_there_is():
    whole, partial = stat("a", 0, 10), stat("b", 20, 0)
    whole.op_end_rel_micros = 7
    partial.op_end_rel_micros = 4
    assert times(load(run_metadata(dev_stats=[lane(CPU0, whole, partial)]))) == [
        ("a", 0, 10_000, None),
        ("b", 20_000, 24_000, None),
    ]


def test_enqueue_times_in_raw_clock_ticks_are_unknown():
    far, early, negative, good = (stat(name, 10, 1) for name in "abcd")
    far.scheduled_micros = 15_481_878_642_345_949
    far.scheduled_nanos = -2_964_865_431_363_601_976
    early.scheduled_micros = 4_294_967  # cut to 32 bits
    negative.scheduled_micros = -5
    good.scheduled_micros = EPOCH_US + 8
    trace = load(run_metadata(dev_stats=[lane(CPU0, far, early, negative, good)]))
    assert [row[3] for row in times(trace)] == [None, None, None, -2_000]
    assert notes(trace)["scheduled-times-unbelievable"].text.startswith("3 of 4 enqueue times")


def test_garbage_nanoseconds_do_not_hide_good_microseconds():
    row = stat("a", 10, 1, scheduled=8)
    row.scheduled_nanos = -7
    assert times(load(run_metadata(dev_stats=[lane(CPU0, row)]))) == [("a", 0, 1_000, -2_000)]


def test_an_event_that_ends_before_it_starts_has_no_length_and_a_note():
    back, years = stat("a", 10, 0), stat("b", 20, 0)
    back.all_end_rel_micros = -5
    years.all_end_rel_micros = 400 * DAY_US
    trace = load(run_metadata(dev_stats=[lane(CPU0, back, years, stat("c", 30, 1))]))
    assert times(trace) == [("a", 0, 0, None), ("b", 10_000, 10_000, None), ("c", 20_000, 21_000, None)]
    assert notes(trace)["lengths-unbelievable"].count == 2


def test_gpu_rows_that_count_from_the_start_are_moved_by_the_launches_of_their_nodes():
    # on the host's clock: launches at 100 and 200 us; on the GPU's own: kernels at 3 and 110 us.
    # No kernel may start before its launch: at least 97 us (3 -> 100) have to be added, and that suffices (110 -> 207).
    trace = load(
        run_metadata(
            dev_stats=[
                lane(CPU0, op("x", "Const", start=90, duration=1)),
                host(op("a", "Relu", start=100, duration=1), op("b", "Relu", start=200, duration=1)),
                *gpu_lanes(
                    0,
                    kernels=[
                        kernel("a", "Relu", start=3, duration=5, epoch=0),
                        kernel("b", "Relu", start=110, duration=5, epoch=0, scheduled=104),
                    ],
                    copies=[copy("edge_1_x", "HtoD", 4, start=1, duration=1, epoch=0)],
                ),
            ]
        )
    )
    assert times(trace, "kernel") == [("a:Relu", 10_000, 15_000, None), ("b:Relu", 117_000, 122_000, 111_000)]
    assert times(trace, "memcpy") == [("edge_1_x:MEMCPYHtoD", 8_000, 9_000, None)]
    note = notes(trace)["clock-rebased"]
    assert (note.count, "no kernel starts before its launch" in note.text) == (3, True)


def test_gpu_rows_with_enqueue_times_on_the_hosts_clock_are_moved_by_these():
    rows_ = [kernel("a", "Relu", start=3, duration=5, epoch=0), kernel("b", "Relu", start=50, duration=5, epoch=0)]
    rows_[0].scheduled_micros = EPOCH_US + 101  # 98 later than it started
    rows_[1].scheduled_micros = EPOCH_US + 120  # 70 later
    trace = load(
        run_metadata(
            dev_stats=[
                lane(CPU0, op("x", "Const", start=90, duration=1)),
                host(op("a", "Relu", start=99, duration=1)),
                *gpu_lanes(0, kernels=rows_),
            ]
        )
    )
    assert times(trace, "kernel") == [("a:Relu", 11_000, 16_000, 11_000), ("b:Relu", 58_000, 63_000, 30_000)]
    assert "none starts before it was enqueued" in notes(trace)["clock-rebased"].text


def test_gpus_on_one_foreign_clock_are_moved_together():
    trace = load(
        run_metadata(
            dev_stats=[
                lane(GPU0, op("a", "Relu", start=100, duration=1)),
                lane(GPU1, op("b", "Relu", start=150, duration=1)),
                *gpu_lanes(0, kernels=[kernel("a", "Relu", start=0, duration=5, epoch=0)]),
                *gpu_lanes(1, kernels=[kernel("b", "Relu", start=80, duration=5, epoch=0)]),
            ]
        )
    )
    # a asks for +100, b for +70: with +100 both hold
    assert times(trace, "kernel") == [("a:Relu", 0, 5_000, None), ("b:Relu", 80_000, 85_000, None)]


def test_without_an_anchor_the_group_begins_with_the_step_and_says_so():
    trace = load(
        run_metadata(
            dev_stats=[
                lane(CPU0, op("x", "Const", start=90, duration=1)),
                lane("/device:GPU:0/stream:14", copy("edge_1_x", "HtoD", 4, start=1, duration=2, epoch=0),
                     copy("edge_2_y", "HtoD", 4, start=7, duration=2, epoch=0)),
            ]
        )
    )  # fmt: skip
    assert rows(trace.copies.merge(trace.events, on="event_id", validate="1:1"), "edge_name", "start_ns") == [
        ("edge_1_x", 0),
        ("edge_2_y", 6_000),
    ]
    assert "their order against the host's events is not known" in notes(trace)["clock-rebased"].text


def test_a_lane_that_is_thirteen_times_too_large_yields_to_its_believable_twin():
    good = [copy(f"edge_{n}_x", "HtoD", 4, start=10 * n, duration=1) for n in (1, 2)]
    bad = [copy(f"edge_{n}_x", "HtoD", 4, start=10 * n, duration=1, epoch=13 * EPOCH_US) for n in (1, 2)]
    trace = load(
        run_metadata(
            dev_stats=[
                lane(CPU0, op("x", "Const", start=0, duration=1)),
                lane("/device:GPU:0/memcpy", *bad),
                lane("/device:GPU:0/stream:14", *good),
            ]
        )
    )
    assert times(trace, "memcpy") == [
        ("edge_1_x:MEMCPYHtoD", 10_000, 11_000, None),
        ("edge_2_x:MEMCPYHtoD", 20_000, 21_000, None),
    ]
    assert "clock-rebased" not in notes(trace)  # nothing had to be moved


def test_a_lane_that_is_thirteen_times_too_large_and_has_no_twin_is_kept_and_moved():
    bad = [copy(f"edge_{n}_x", "HtoD", 4, start=10 * n, duration=1, epoch=13 * EPOCH_US) for n in (1, 2)]
    trace = load(
        run_metadata(
            dev_stats=[
                lane(CPU0, op("x", "Const", start=0, duration=1)),
                *gpu_lanes(0, kernels=[kernel("k", "Relu", start=4, duration=1)], copies=bad),
            ]
        )
    )
    assert times(trace, "memcpy") == [
        ("edge_1_x:MEMCPYHtoD", 0, 1_000, None),
        ("edge_2_x:MEMCPYHtoD", 10_000, 11_000, None),
    ]
    assert len(trace.copies) == 2
    assert notes(trace)["clock-rebased"].text.startswith("2 events ran on a clock")


def test_streams_on_two_clocks_are_not_taken_for_twins():
    row = kernel("k", "Relu", start=4, duration=1)
    foreign = kernel("k", "Relu", start=4, duration=1, epoch=0)
    trace = load(
        run_metadata(
            dev_stats=[
                lane(CPU0, op("x", "Const", start=0, duration=1)),
                lane("/device:GPU:0/stream:13", row),
                lane("/device:GPU:0/stream:14", foreign),
            ]
        )
    )
    assert len(times(trace, "kernel")) == 2


def test_starts_too_large_for_nanoseconds_do_not_overflow_in_silence():
    huge = copy("edge_1_x", "HtoD", 4, start=0, duration=1, epoch=19_978_045_970_716_470)
    later = copy("edge_2_x", "HtoD", 4, start=25, duration=1, epoch=19_978_045_970_716_470)
    for row, start in ((huge, 0), (later, 25)):
        row.all_start_micros = 2**62 + start
    trace = load(run_metadata(dev_stats=[lane(CPU0, op("x", "Const", start=0, duration=1)),
                                         lane("/device:GPU:0/memcpy", huge, later)]))  # fmt: skip
    assert [row[1:3] for row in times(trace, "memcpy")] == [(0, 1_000), (25_000, 26_000)]


def test_a_file_with_gpu_lanes_only_keeps_its_own_clock():
    trace = load(run_metadata(dev_stats=gpu_lanes(0, kernels=[kernel("a", "Relu", start=3, duration=5, epoch=0)])))
    assert times(trace) == [("a:Relu", 0, 5_000, None)]
    assert "clock-rebased" not in notes(trace)


def test_rows_without_any_time_are_nodes_only():
    blank = stat("x", 0, 0, "x = Const()", epoch=0)
    trace = load(run_metadata(dev_stats=[lane(CPU0, blank, op("y", "Relu", "x", start=5, duration=1))]))
    assert trace.nodes["name"].tolist() == ["x", "y"]
    assert trace.events["name"].tolist() == ["y"]
    assert notes(trace)["events-without-times"].count == 1


def test_a_file_in_which_nothing_has_a_time_still_has_its_events():
    blank = stat("x", 0, 0, "x = Const()", epoch=0)
    copied = copy("edge_1_x", "HtoD", 4, start=0, duration=0, epoch=0)
    trace = load(run_metadata(dev_stats=[lane(CPU0, blank), *gpu_lanes(0, copies=[copied])]))
    assert times(trace) == [("x", 0, 0, None), ("edge_1_x:MEMCPYHtoD", 0, 0, None)]


def test_a_thousand_foreign_clocks_are_read_in_one_go():
    rows_ = [stat(f"n{n}", 1, 1, epoch=n * 3 * DAY_US) for n in range(1, 1000)]
    trace = load(run_metadata(dev_stats=[lane(CPU0, op("x", "Const", start=0, duration=1)), lane(GPU0, *rows_)]))
    assert len(trace.events) == 1000
    assert sum(note.count or 0 for note in trace.notes if note.slug == "clock-rebased") == 999
