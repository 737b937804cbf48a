"""What the renderers do with a Report: the same numbers, hostile names made harmless, long lists cut where asked."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from tests import report_samples as samples
from tfplace.diagnose.rule import Outcome
from tfplace.model import schema
from tfplace.report.json_report import render_json
from tfplace.report.markdown import code, prose, render_markdown
from tfplace.report.page import FILE, build_page
from tfplace.report.plain import align, render_text, width_of, wrap
from tfplace.report.summary import summarize
from tfplace.report.tables import Column
from tfplace.report.terminal import fit_names, render_terminal, shorten
from tfplace.report.wording import MAX_NAME, cost_phrase, count_of, join_words, safe, time_phrase

HOSTILE = "a\x1b[31mred\x07|`<script>alert(1)</script>\u202eevil\r\n# head"


def report(analysis=None, outcomes=None):
    return summarize(analysis or samples.analysis(), outcomes or samples.outcomes())


def hostile_report():
    named = dict.fromkeys(range(9), HOSTILE)
    trace = samples.trace(nodes=samples.nodes(named), source=(HOSTILE,))
    frame = samples.transfers().assign(tensor_name=HOSTILE, edge_name=HOSTILE)
    made = samples.analysis(
        trace,
        variables=samples.variables(name=HOSTILE, reason=HOSTILE, source=HOSTILE),
        transfers=schema.conform("transfers", frame),
    )
    bad = samples.finding(title=HOSTILE, detail=HOSTILE, fix=HOSTILE, evidence=(HOSTILE,), subjects=(HOSTILE,))
    return report(made, samples.outcomes(bad))


def many(count: int):
    """A report with `count` distinct transfers and as many findings."""
    one = samples.transfers().iloc[[0]]
    rows = schema.conform(
        "transfers",
        one.loc[one.index.repeat(count)].assign(
            edge_name=[f"edge_{i:03d}_x" for i in range(count)],
            tensor_name=[f"x{i:03d}" for i in range(count)],
            transfer_id=range(count),
        ),
    )
    findings = [samples.finding(title=f"finding number {i}") for i in range(count)]
    return report(samples.analysis(transfers=rows), samples.outcomes(*findings))


RENDERERS = {
    "text": render_text,
    "markdown": render_markdown,
    "terminal": lambda made: render_terminal(made, 100, "standard"),
}


# ---------------------------------------------------------------- hostile names


@pytest.mark.parametrize("name", ["text", "markdown"])
def test_hostile_names_reach_no_page_raw(name):
    page = RENDERERS[name](hostile_report())
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
    assert "\\x1b" in page or "\\\\x1b" in page


def test_hostile_names_send_no_codes_to_a_terminal():
    page = render_terminal(hostile_report(), 100, None)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page)


def test_markup_in_names_is_data_in_a_terminal():
    loud = samples.finding(title="[bold red]not bold[/] :smile:")
    assert "[bold red]not bold[/] :smile:" in render_terminal(report(outcomes=samples.outcomes(loud)), 100, None)


def test_hostile_names_are_no_html_or_table_in_markdown():
    page = render_markdown(hostile_report())
    outside_code = re.sub(r"(?<![\\`])(`+)(?!`).+?(?<!`)\1(?!`)", "", page)
    assert "<" not in outside_code
    assert "\n# head" not in page
    for line in page.splitlines():
        if line.startswith("| ") and "HostSend" not in line:
            unescaped = re.findall(r"(?<!\\)\|", line)
            assert len(unescaped) == len(re.findall(r"(?<!\\)\|", _header_of(page, line)))


def _header_of(page: str, row: str) -> str:
    lines = page.splitlines()
    at = lines.index(row)
    while lines[at - 1].startswith("| "):
        at -= 1
    return lines[at]


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a|b", r"a\|b"),
        ("`x`", r"\`x\`"),
        ("<script>", "&lt;script&gt;"),
        ("a & b", "a &amp; b"),
        ("_Send of x_y", r"\_Send of x_y"),
        ("*bold* ~~gone~~", r"\*bold\* \~\~gone\~\~"),
        ("# head", r"\# head"),
        ("- item", r"\- item"),
        ("1. item", r"\1. item"),
        ("[a](b)", r"\[a\](b)"),
        ("loc:@group", "loc:@&#8203;group"),
        ("one\ntwo", "one  \ntwo"),
    ],
)
def test_prose_is_no_markdown(text, escaped):
    assert prose(text) == escaped


@pytest.mark.parametrize(
    ("text", "span"),
    [("a/b_1", "`a/b_1`"), ("a`b", "``a`b``"), ("`a", "`` `a ``"), ("a|b", r"`a\|b`"), ("", ""), ("<b>", "`<b>`")],
)
def test_names_are_code_spans(text, span):
    assert code(text) == span


def test_safe_keeps_ordinary_names_and_cuts_absurd_ones():
    long = "a" * 200 + "/" + "b" * 150
    assert safe(f"x {long} y") == f"x {long} y"
    cut = safe(f"x {'a' * 10_000} y")
    assert len(cut) == MAX_NAME + 4
    assert cut.startswith("x aaa")
    assert cut.endswith("aaa y")


def test_safe_shows_escapes():
    assert safe("a\x1b[2J\u202eb") == "a\\x1b[2J\\u202eb"


# ---------------------------------------------------------------- JSON


def test_json_is_ascii_and_gives_names_back_exactly():
    text = render_json(hostile_report())
    assert text.isascii()
    assert "\x1b" not in text
    assert json.loads(text)["variables"][0]["name"] == HOSTILE


def test_json_has_no_nan():
    odd = report(samples.analysis(gpu_busy_share=float("nan"), exposed_copy_ns=float("inf")))
    text = render_json(odd)
    assert "NaN" not in text
    assert "Infinity" not in text
    assert json.loads(text)["totals"]["gpu_busy_share"] is None


def test_json_findings_cost_microseconds():
    [found] = json.loads(render_json(report()))["findings"]
    assert (found["cost_us_per_step"], found["cost_basis"], found["bytes_per_step"]) == (0.33325, "estimated", 4000)
    assert found["evidence"] == ["train/w, 4.0 kB"]


# ---------------------------------------------------------------- the page


def test_the_page_comes_in_reading_order():
    text = render_text(report())
    marks = ["trace.pbtxt: RunMetadata text", "Could not look: xla-hides-placement (no graphs).", "1 variable (4.0 kB)",
             "1 variable-on-cpu", "Looked and found nothing: table-on-cpu.", "Is the CPU the bottleneck",
             "Are weights copied", "When is the input copied", "\nVariables\n", "\nOver the bus in a step\n",
             "\nTransfers in a step\n", "\nPlacement by device\n", "\nPlacement by name scope\n",
             "\nNotes\n"]  # fmt: skip
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


def test_simulated_and_stand_in_gpus_are_announced_first():
    simulated = render_text(report(samples.analysis(samples.trace(simulated="1 simulated GPU of 16 GB"))))
    first = " ".join(simulated.split("\n\n")[0].split())
    assert "simulated GPU (placement and bytes are real, times are not)" in first
    played = render_text(report(samples.analysis(samples.trace(devices=samples.devices(kind="CPU", model=None)))))
    second = played.splitlines()[1]
    assert second == "CPU:1 plays the accelerator: placement and bytes are real, times are not a GPU's."
    assert "time of one" not in played
    assert not re.search(r"\d (ns|us|ms)\b", played.split("Looked and found nothing")[1])


def test_capture_findings_stand_at_the_top_and_are_no_numbered_findings():
    capture = samples.finding(rule="capture-quality", title="No partition graphs", detail="", fix="Ask for them.")
    page = build_page(report(outcomes=samples.outcomes(capture, samples.finding())), FILE)
    assert page.trust[0] == "No partition graphs. Ask for them."
    assert [(block.number, block.rule) for block in page.findings] == [(1, "variable-on-cpu")]


def test_rules_of_one_reason_are_named_together():
    blind = [replace(samples.outcomes()[2], rule=rule) for rule in ("a", "b")]
    page = build_page(report(outcomes=blind), FILE)
    assert page.trust == ["Could not look: a, b (no graphs)."]


def test_what_is_below_a_limit_is_not_called_nothing():
    little = Outcome("feed-copied", "clear", "40.0 kB a step, below the limit of 100 kB")
    page = build_page(report(outcomes=[*samples.outcomes(), little]), FILE)
    assert page.rules == [
        "Looked and found nothing: table-on-cpu.",
        "Looked and found too little to matter: feed-copied (40.0 kB a step, below the limit of 100 kB).",
    ]


def test_the_verdict_is_not_said_twice():
    text = render_text(report())
    assert text.count("is copied from CPU:0 to GPU:0 in every step") == 1


def test_five_findings_at_most_unless_all():
    made = many(7)
    assert "And 2 more: --all" in render_text(made)
    assert "finding number 6" not in render_text(made)
    assert "finding number 6" in render_text(made, show_all=True)
    assert "And 2 more: `--all`" in render_markdown(made)


def test_files_and_pipes_get_every_row_and_terminals_fifteen():
    made = many(40)
    assert all(f"x{i:03d}" in render_text(made) for i in range(40))
    assert all(f"x{i:03d}" in render_markdown(made) for i in range(40))
    short = render_terminal(made, 120, None)
    assert ("x014" in short, "x015" in short) == (True, False)
    assert "and 25 more: --all" in short
    assert "x039" in render_terminal(made, 120, None, show_all=True)


def test_text_is_plain_and_long_names_stay_whole():
    name = "/".join(["model"] * 40)  # 239 characters
    made = report(samples.analysis(variables=samples.variables(name=name)))
    text = render_text(made)
    assert name in text
    assert text.isascii()
    assert not any(line.endswith(" ") for line in text.splitlines())


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_terminal_lines_fit_the_width(width):
    made = report(samples.analysis(variables=samples.variables(name="model/" * 60)))
    assert max(map(len, render_terminal(made, width, None).splitlines())) <= width


def test_terminal_colours_only_where_asked():
    assert "\x1b[" in render_terminal(report(), 80, "standard")
    assert "\x1b" not in render_terminal(report(), 80, None)


def test_terminal_gives_reasons_under_the_table():
    assert "unnecessary: all its ops have GPU kernels (train/w)" in render_terminal(report(), 80, None)


def test_several_files_are_named_short():
    trace = samples.trace(source=tuple(f"step_{i}.pb" for i in range(9)))
    assert render_text(report(samples.analysis(trace))).startswith("step_0.pb and 8 more files: RunMetadata text")


def test_unknown_sizes_make_totals_a_lower_bound():
    frame = samples.transfers()
    frame.loc[frame["tensor_name"] == "train/grad:0", "num_bytes"] = None
    text = render_text(report(samples.analysis(transfers=frame)))
    assert re.search(r"D2H, device to host +2.5 +at least 16 B", text)


# ---------------------------------------------------------------- small parts


def test_wrap_breaks_at_spaces_only():
    assert wrap("a" * 150 + " b", "  ") == ["  " + "a" * 150, "  b"]
    assert wrap("", "  ") == []
    assert wrap("one\ntwo", "- ", "  ") == ["- one", "  two"]


def test_align_pads_by_width_on_screen():
    assert align(("n", "count"), [("\u4e2d\u6587", "1"), ("ab", "10")], (False, True)) == [
        "n     count",
        "\u4e2d\u6587      1",
        "ab       10",
    ]
    assert width_of("e\u0301") == 1


def test_counts_and_lists_read_well():
    assert [count_of(n, "copy", "copies") for n in (1, 2, 2.5, 1200)] == ["1 copy", "2 copies", "2.5 copies",
                                                                          "1,200 copies"]  # fmt: skip
    assert join_words(["a"]) == "a"
    assert join_words(["a", "b", "c"]) == "a, b and c"
    assert join_words(list("abcdefgh"), most=2) == "a, b and 6 more"
    assert join_words([]) == ""


def test_cost_phrases_name_their_basis():
    estimated = samples.finding()
    measured = samples.finding(cost_basis="measured", bytes_per_step=None, cost_ns_per_step=4e5)
    assert cost_phrase(estimated) == "4.0 kB a step, less than 0.001 ms (estimate)"
    assert time_phrase(measured) == cost_phrase(measured) == "0.4 ms a step (measured)"
    assert cost_phrase(samples.finding(cost_ns_per_step=None)) == "4.0 kB a step"
    assert cost_phrase(samples.finding(cost_ns_per_step=None, bytes_per_step=None)) is None


def test_names_give_way_in_a_narrow_terminal():
    columns = [Column("tensor", code=True), Column("bytes", right=True), Column("consumers", code=True)]
    # 50 + 6 + 30 and two gaps of 3 in 60 columns: 32 too many, all taken from names, evenly in the end
    assert fit_names(columns, [50, 6, 30], 60) == [24, 6, 24]
    assert fit_names(columns, [10, 6, 10], 60) == [10, 6, 10]
    assert fit_names(columns, [50, 6, 30], 10) == [12, 6, 12]  # never less than that


def test_shortened_names_keep_both_ends_and_count_the_rest():
    assert shorten("gradients/local3/MatMul_grad/x", 30) == "gradients/local3/MatMul_grad/x"
    assert shorten("gradients/local3/MatMul_grad/x", 16) == "gradients/\u2026rad/x"
    assert shorten("conv1/Relu, conv1/grad, conv1/other", 15) == "conv1/Relu +2"
    assert len(shorten("a" * 50 + ", b", 20)) == 20


def test_a_narrow_terminal_shows_whole_names_with_all():
    name = "gradients/" * 12 + "x"
    made = report(samples.analysis(variables=samples.variables(name=name)))
    assert name not in render_terminal(made, 80, None)
    whole = render_terminal(made, 80, None, show_all=True).replace(" ", "").replace("\n", "")
    assert "gradients/gradients/" in whole
    assert "\u2026" not in whole
