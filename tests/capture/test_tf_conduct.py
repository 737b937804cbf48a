"""Capture among everything else that a program does."""

from __future__ import annotations

import json

import pytest
from conftest import read_trace

EXPECTED = [2.0, 3.0, 5.0, 8.0, 12.0, 17.0, 23.0, 30.0]  # 2 * (1 + sum of x / 2)


@pytest.fixture
def conduct(run):
    def go(scenario, code=0, **options):
        ran = run("conduct.py", scenario, **options)
        assert ran.code == code, ran.err
        return json.loads(ran.out.splitlines()[-1]), ran

    return go


def timed(trace):
    return trace.context["steps"]


def test_program_may_configure_devices_after_decorating(conduct):
    said, ran = conduct("own-devices")
    assert said["results"] == [number + 1.0 for number in range(8)]
    assert ran.trace


def test_step_that_fails_is_saved_and_its_error_goes_on(conduct):
    said, ran = conduct("step-fails")
    assert said["error"] == "InvalidArgumentError"
    assert [step["failed"] for step in ran.trace.all_steps()] == [False] * 4 + [True]
    assert ran.trace.message.function_graphs
    assert "step-failed" in ran.trace.notes()
    assert not said["live"]


def test_first_step_that_fails_still_gives_its_graphs(conduct):
    said, ran = conduct("first-step-fails")
    assert said["error"] == "InvalidArgumentError"
    assert ran.trace.message.function_graphs


def test_end_of_the_data_is_no_step(conduct):
    said, ran = conduct("end-of-data")
    assert said["results"] == [0.0, 2.0, 4.0, 6.0] * 2
    assert [step["num"] for step in ran.trace.all_steps()] == [0, 1, 2, 3, 4]


def test_exit_while_capturing_writes_what_there_is(conduct):
    _, ran = conduct("exits-early", code=3)
    assert len(timed(ran.trace)) == 2
    assert ran.trace.message.step_stats.dev_stats


def test_second_capture_while_one_is_on_is_a_no_op_with_a_warning(conduct):
    said, _ = conduct("two-captures")
    assert said["files"] == ["first.pb"]
    assert len(said["warnings"]) == 1
    assert "another capture is on" in said["warnings"][0]


def test_captures_may_follow_each_other(conduct):
    said, _ = conduct("one-after-the-other")
    assert said["files"] == ["first.pb", "second.pb"]


def test_step_called_by_several_threads(conduct):
    said, ran = conduct("threads")
    assert said["count"] == 80
    assert said["last"] == 2 * (1 + 80 / 2)
    assert len(timed(ran.trace)) == 3


def test_step_that_calls_itself(conduct):
    said, ran = conduct("reentrant")
    assert said["results"] == EXPECTED
    assert len(timed(ran.trace)) == 3


def test_forked_child_captures_nothing_and_the_parent_goes_on(conduct):
    said, ran = conduct("fork")
    assert said["child"] == 0
    assert ran.trace


def test_users_profiler_is_left_alone(conduct):
    said, ran = conduct("users-profiler-on")
    assert said["results"] == EXPECTED
    assert said["theirs"] == 1
    assert "profiler-busy" in ran.trace.notes()
    assert ran.trace.message.function_graphs
    assert len(said["warnings"]) == 1


def test_user_who_starts_a_profiler_gets_it(conduct):
    said, ran = conduct("user-starts-profiler")
    assert said["theirs"] == 1
    assert "profiler-given-up" in ran.trace.notes()


def test_users_summary_trace_keeps_its_graphs(conduct):
    said, _ = conduct("summary-trace")
    assert max(said["plain"]) == max(said["traced"])


def test_folder_that_vanishes_costs_the_trace_only(conduct):
    said, _ = conduct("folder-removed", strict=False)
    assert said["results"] == EXPECTED
    assert len(said["warnings"]) == 1
    assert "cannot be written" in said["warnings"][0]


def test_full_disk_leaves_no_half_file(conduct):
    said, _ = conduct("disk-full", strict=False, trace=None)
    assert said["results"] == [3.0, 4.0, 6.0, 9.0, 13.0, 18.0]
    assert said["files"] == ["err.txt", "out.txt"]
    assert said["warnings"]


def test_warnings_as_errors_do_not_end_the_training(conduct):
    said, ran = conduct("warnings-are-errors", strict=False)
    assert said["results"] == EXPECTED
    assert "cannot be written" in ran.err


def test_disabled_returns_the_function_itself(conduct):
    said, ran = conduct("disabled")
    assert said["same"] == [True, True, True]
    assert said["results"] == EXPECTED
    assert ran.trace is None


def test_decorated_function_is_what_it_was(conduct):
    said, _ = conduct("looks-the-same")
    assert said["same_object"]
    assert said["isinstance"]
    assert said["signature"]
    assert said["concrete"]
    assert said["type_afterwards"]
    assert said["method"] == [4.0, 6.0]
    assert said["saved"] == 10.0
    assert said["wrapped"] == [True, "Does things.", "documented", 1]
    assert said["pickled"]


def test_misuse_raises_when_decorating(conduct):
    said, _ = conduct("misuse")
    slugs = [text and text.partition(":")[0] for text in said["errors"]]
    assert slugs == ["usage", "output", "usage", "usage", "usage", "usage", "usage", "usage", "usage"]


def test_late_capture_changes_no_result_of_a_function_without_random_ops(conduct):
    said, ran = conduct("stateful-late")
    assert said["plain"] == said["traced"]
    assert ran.trace.message.function_graphs


def test_loop_of_several_functions_is_one_step_with_all_graphs(conduct):
    _, ran = conduct("gan")
    names = {one["python_name"] for one in ran.trace.context["functions"]}
    assert {"generator_step", "discriminator_step"} <= names
    assert {one["name"] for one in ran.trace.arguments()} == {"generator", "discriminator"}


def test_retracing_is_told_and_each_form_is_shown(conduct):
    _, ran = conduct("retracing")
    assert "retracing" in ran.trace.notes()
    assert len(ran.trace.message.function_graphs) == 2


def test_every_format_is_read_by_tensorflow(conduct):
    said, ran = conduct("text", trace=None)
    assert said["files"] == ["a.pbtxt", "b.pb", "c.pbtxt.gz", "d.pb.gz", "e.pb", "e.xplane.pb", "err.txt", "out.txt"]
    traces = [read_trace(ran.folder / name) for name in said["files"][:5]]
    assert len({len(one.message.function_graphs[0].partition_graphs) for one in traces}) == 1
    assert all(one.context["tf_version"] and one.context["functions"] for one in traces)
    assert traces[4].context["accelerator"] == "CPU:1"


def test_large_constants_are_stored_without_their_values(conduct):
    _, ran = conduct("large-constant")
    assert ran.trace.path.stat().st_size < 200_000
    constants = [node for graphs in ran.trace.graphs().values() for graph in graphs for node in graph.node]
    tensors = [node.attr["value"].tensor for node in constants if node.op == "Const"]
    large = [tensor for tensor in tensors if [dim.size for dim in tensor.tensor_shape.dim] == [100, 100]]
    assert large
    assert all(not tensor.tensor_content and not tensor.float_val for tensor in large)


def test_step_with_too_few_calls_has_graphs_and_says_that_nothing_was_timed(conduct):
    _, ran = conduct("few-calls")
    assert ran.trace.message.function_graphs
    assert "not-timed" in ran.trace.notes()


def test_autograph_converts_the_function_during_and_after_its_capture(conduct):
    said, _ = conduct("autograph")
    values = [0.0, 1.0, 2.0, 6.0, 8.0, 10.0, 12.0, 14.0]
    assert said["below"] == said["plain"] == values
    assert said["outer"] == [value + 1.0 for value in values]
    assert said["retraced"] == [1.0, 2.0, 6.0, 8.0]


def test_eager_step_gets_a_hint_and_no_file(conduct):
    said, ran = conduct("eager")
    assert said["results"] == [number + 1.0 for number in range(8)]
    assert len(said["warnings"]) == 1
    assert "no compiled function ran in it" in said["warnings"][0]
    assert "put @tf.function on the step" in said["warnings"][0]
    assert not (ran.folder / "trace.pb").exists()


def test_graphs_are_collected_no_longer_than_the_capture_and_all_patches_are_gone(conduct):
    said, ran = conduct("afterwards")
    assert ran.trace.message.function_graphs
    assert said["left"] == []
    assert said["graphs"] == 0


def test_argument_that_moves_is_placed_anew(conduct):
    _, ran = conduct("argument-moves")
    assert "placed-anew" in ran.trace.notes()
    assert len(ran.trace.message.function_graphs) == 1


def test_ctrl_c_in_the_step_is_saved_and_goes_on(conduct):
    said, ran = conduct("ctrl-c-in-step")
    assert said["error"] == "KeyboardInterrupt"
    assert ran.trace.all_steps()[-1]["failed"]
    assert not said["live"]


def test_a_fit_too_short_for_its_callback_does_not_keep_out_the_next(run):
    ran = run("keras_fit.py", "short", "fit")
    assert ran.code == 0, ran.err
    assert len(timed(ran.trace)) == 3
    first = read_trace(ran.folder / "first.pb")
    assert not timed(first)
    assert any("smaller batch=" in note["text"] for note in first.context["notes"])
    assert not any("another capture" in warning for warning in ran.warnings)
