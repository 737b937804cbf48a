"""Paths to a Trace: files, folders, and what is said where one of them is no trace."""

import gzip

import pytest

from tests.builders import CPU0, graph, lane, node, op, run_metadata
from tfplace.errors import TfplaceError, UnreadableTraceError, UnsupportedFormatError, UsageError
from tfplace.read import load
from tfplace.read.load import load_trace

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))


def write_step(path, start=0, name="x"):
    message = run_metadata([graph(CPU0, node(name, "Const"))], [lane(CPU0, op(name, "Const", start=start, duration=1))])
    data = message.SerializeToString()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def test_one_file(tmp_path):
    trace = load_trace([write_step(tmp_path / "a.pb")])
    assert trace.nodes["name"].tolist() == ["x"]
    assert trace.source == (str(tmp_path / "a.pb"),)
    assert "binary" in trace.format


def test_several_files_are_steps_in_the_order_given(tmp_path):
    late, early = write_step(tmp_path / "a.pb", start=50), write_step(tmp_path / "b.pb.gz", start=0)
    trace = load_trace([late, early])
    assert trace.steps["start_ns"].tolist() == [50_000, 0]


def test_the_files_of_a_folder_are_steps_in_natural_order(tmp_path):
    for number in (10, 9, 2):
        write_step(tmp_path / f"step_{number}.pb", start=number)
    (tmp_path / ".hidden").write_bytes(PNG)
    (tmp_path / "inner").mkdir()
    trace = load_trace([str(tmp_path)])
    assert [source.rpartition("step_")[2] for source in trace.source] == ["2.pb", "9.pb", "10.pb"]
    assert trace.steps["start_ns"].tolist() == [0, 7_000, 8_000]
    assert not [note for note in trace.notes if note.slug == "files-skipped"]


def test_files_of_a_folder_that_are_no_traces_are_passed_over_with_a_note(tmp_path):
    write_step(tmp_path / "a.pb")
    (tmp_path / "b.png").write_bytes(PNG)
    trace = load_trace([str(tmp_path)])
    assert [(n.count, "b.png" in n.text) for n in trace.notes if n.slug == "files-skipped"] == [(1, True)]


def test_a_damaged_trace_in_a_folder_is_not_passed_over(tmp_path, monkeypatch):
    def fail(path, progress):
        raise UnreadableTraceError("It is damaged.", "Record it again.")

    write_step(tmp_path / "b.pb")
    monkeypatch.setattr(load, "read_raw", fail)
    with pytest.raises(UnreadableTraceError, match=r"b\.pb: It is damaged. Record it again."):
        load_trace([str(tmp_path)])


@pytest.mark.parametrize("held", [[], ["a.png", "b.png"]])
def test_a_folder_without_a_trace_is_one_clear_error(tmp_path, held):
    for name in held:
        (tmp_path / name).write_bytes(PNG)
    with pytest.raises(UnreadableTraceError) as caught:
        load_trace([str(tmp_path)])
    assert str(tmp_path) in str(caught.value)
    assert ("it holds no files" in str(caught.value)) == (not held)


def test_the_error_names_the_file_that_failed(tmp_path):
    good, bad = write_step(tmp_path / "good.pb"), tmp_path / "bad.pb"
    bad.write_bytes(PNG)
    with pytest.raises(UnsupportedFormatError, match=r"bad\.pb"):
        load_trace([good, str(bad)])
    with pytest.raises(UnreadableTraceError, match=r"absent\.pb"):
        load_trace([good, str(tmp_path / "absent.pb")])


def test_odd_calls_are_usage_errors():
    with pytest.raises(UsageError):
        load_trace([])
    with pytest.raises(UsageError):
        load_trace(["-", "-"])


def test_every_error_is_one_of_ours(tmp_path):
    path = tmp_path / "x\x1b[31m.pb"
    path.write_bytes(PNG)
    with pytest.raises(TfplaceError) as caught:
        load_trace([str(path)])
    assert "\x1b" not in str(caught.value)


def test_the_garbage_collector_is_left_as_it_was(tmp_path):
    import gc

    assert gc.isenabled()
    load_trace([write_step(tmp_path / "a.pb")])
    assert gc.isenabled()
    with pytest.raises(TfplaceError):
        load_trace([str(tmp_path / "absent")])
    assert gc.isenabled()
