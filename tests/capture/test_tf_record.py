"""`record`: an unedited script, found step, unchanged behaviour."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import PROGRAMS, ROOT


def step_of(ran):
    return ran.trace.context["step_name"]


def test_largest_repeating_function_with_variables_is_the_step(run):
    ran = run("recorded.py", "script.py", "end")
    assert ran.code == 0, ran.err
    assert step_of(ran) == "train"
    assert len(ran.trace.context["steps"]) == 3


def test_step_can_be_named(run):
    assert step_of(run("recorded.py", "--step", "evaluate", "script.py", "end")) == "evaluate"


def test_results_and_arguments_are_those_of_the_plain_run(run):
    assert run("recorded.py", "script.py", "end", "--lr", "3").out == run("script.py", "end", "--lr", "3").out


@pytest.mark.parametrize(("end", "code"), [("exit", 7), ("raise", 1)])
def test_exit_code_goes_on_and_the_trace_is_written(run, end, code):
    ran = run("recorded.py", "script.py", end)
    assert ran.code == code
    assert step_of(ran) == "train"


def test_error_of_the_script_shows_the_scripts_frames(run):
    ran = run("recorded.py", "script.py", "raise")
    assert "ValueError: of the script" in ran.err
    assert 'script.py", line' in ran.err


def test_program_that_imports_tensorflow_itself_sets_its_environment_first(tmp_path):
    program = (
        "import sys\n"
        "from tfplace.capture.runner import record\n"
        "assert 'tensorflow' not in sys.modules\n"
        "record(sys.argv[1], ['end'], path='trace.pb')\n"
    )
    command = [sys.executable, "-c", program, str(PROGRAMS / "script.py")]
    env = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3", "PATH": "/usr/bin"}
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=env, check=False)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "trace.pb").exists()


def test_missing_script_is_a_usage_error(run):
    ran = run("recorded.py", "nowhere.py")
    assert ran.code == 1
    assert "is not a file" in ran.err


def test_module_is_run_as_main(run):
    ran = run("recorded.py", "-m", "cifar", "none")
    assert ran.code == 0, ran.err
    assert step_of(ran) == "train_step"


def test_own_decorator_in_a_recorded_script_only_warns(run):
    ran = run("recorded.py", "cifar.py", "above")
    assert ran.code == 0, ran.err
    assert any("another capture is on" in line for line in ran.warnings)


def test_a_function_without_variables_is_the_step_where_it_runs_often(run):
    ran = run("recorded.py", "plain_function.py", "14", "0")
    assert step_of(ran) == "infer"
    assert len(ran.trace.context["steps"]) == 3


def test_a_function_with_variables_takes_its_place_however_small(run):
    assert step_of(run("recorded.py", "plain_function.py", "14", "8")) == "train"


@pytest.mark.parametrize(("runs", "words"), [("6", "infer ran 6 times"), ("1", "infer ran once")])
def test_too_few_runs_say_how_many_are_needed(run, runs, words):
    notes = run("recorded.py", "plain_function.py", runs, "0").trace.context["notes"]
    assert [note["text"] for note in notes if note["slug"] == "not-timed"] == [
        f"{words}, too few to time a step: 11 are needed."
    ]


def test_as_many_runs_as_are_needed_are_enough(run):
    ran = run("recorded.py", "plain_function.py", "11", "0")
    assert any(step.get("start_ns") for step in ran.trace.context["steps"])
    assert not any(note["slug"] == "not-timed" for note in ran.trace.context["notes"])


def test_a_tensor_made_outside_of_the_function_is_no_input(run):
    (function,) = run("recorded.py", "captured_constant.py").trace.context["functions"]
    assert {row["kind"]: row["shape"] for row in function["arguments"]} == {
        "input": "[2,16]",
        "constant": "[16,8]",
        "variable": "[8,4]",
    }
