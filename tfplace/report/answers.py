"""The three direct answers: sentences with a number, and 'cannot tell' where that is the truth."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tfplace.analyze.analysis import Analysis
from tfplace.diagnose.compiled import Compiled, by_device, compiled_functions
from tfplace.names import printable
from tfplace.report.host_work import busy_threads, host_work_while_idle
from tfplace.report.model import Report
from tfplace.report.wording import count_of, join_words, sentence
from tfplace.units import format_bytes, format_ns

QUESTIONS = {
    "cpu_bottleneck": "Is the CPU the bottleneck, or is it waiting?",
    "weights_copied": "Are weights copied every step?",
    "input_copied": "When is the input copied?",
}

_BUSY = 0.8  # of the step: above it a faster host can gain little
_FEED = re.compile(r"^_arg_(.+)_\d+_\d+$")
_OUTPUT = re.compile(r":[1-9]\d*$")
_MAX_INPUTS = 3


def answer_questions(analysis: Analysis, report: Report) -> dict[str, str]:
    """Return the answers, by the keys of `QUESTIONS`."""
    if not report.devices:
        return dict.fromkeys(QUESTIONS, "The trace cannot tell: it names no device.")
    if not report.trace["accelerators"]:
        nothing = "The trace has no accelerator, so nothing is copied to one."
        cpu = "The trace has no accelerator: all the work that it shows is the host's."
        return dict(zip(QUESTIONS, (cpu, nothing, nothing), strict=True))
    answers = (_cpu_bottleneck(analysis, report), _weights_copied(analysis, report), _input_copied(analysis, report))
    return dict(zip(QUESTIONS, (_of_what_was_read(answer, analysis) for answer in answers), strict=True))


def _of_what_was_read(answer: str, analysis: Analysis) -> str:
    """Take back a 'No' about a file of which the rest is missing: it may hold what was not seen."""
    if not answer.startswith("No:") or not any(note.slug == "truncated" for note in analysis.trace.notes):
        return answer
    return f"The trace cannot tell, since the file breaks off. In what was read, n{answer[1:]}"


# ---------------------------------------------------------------- is the CPU the bottleneck


def _cpu_bottleneck(analysis: Analysis, report: Report) -> str:
    if report.trace["simulated"] is not None or report.trace["cpu_as_accelerator"]:
        return "The trace cannot tell: it has no GPU times."
    busy, step = report.totals["gpu_busy_share"], report.totals["step_time_us"]
    used = _cpu_used(analysis)
    if busy is None or not step:
        missing = "kernel times" if report.trace["has_gpu_times"] else "GPU times"
        full = "Capture with full tracing where the GPU may be profiled."
        return f"The trace cannot tell: it has no {missing}. {full}" + (f" In the step {used}." if used else "")
    gpu = " and ".join(report.trace["accelerators"]) if len(report.trace["accelerators"]) < 3 else "the GPUs"
    seen = f"{gpu} ran kernels in {_percent(busy)} of the step ({format_ns(round(busy * step * 1000))} of "
    seen += f"{format_ns(round(step * 1000))}{', mean over GPUs' if len(report.trace['accelerators']) > 1 else ''})"
    seen += f"; meanwhile {used}" if used else ""
    if busy >= _BUSY:
        return f"Not in this step: {seen}. A faster host can gain little."
    doing = host_work_while_idle(analysis)
    meanwhile = f" While no kernel ran, the host was mostly in {doing}." if doing else ""
    return f"The trace cannot tell for sure: {seen}{_lacking(analysis)}.{meanwhile}"


def _cpu_used(analysis: Analysis) -> str | None:
    """Say how much CPU time the process used in a step, and which threads most of it; None where neither is known."""
    cores = _process_cores(analysis)
    parts = [f"the process used {cores:.1f} CPU cores"] if cores is not None else []
    threads = [f"{printable(name, 40)} {_percent(share)}" for name, share in busy_threads(analysis)]
    if threads:
        parts.append(f"CPU time by thread name, as a share of the step: {join_words(threads)}")
    return ", ".join(parts) or None


def _lacking(analysis: Analysis) -> str:
    if busy_threads(analysis):
        return ", and whether a busy thread works or only spins while it waits is not recorded"
    cores = _process_cores(analysis)
    return f", and it does not hold {'CPU times of the process' if cores is None else 'which threads were busy'}"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.1 or share == 0 else f"{share * 100:.1f} %"


def _process_cores(analysis: Analysis) -> float | None:
    times = analysis.trace.steps["cpu_time_ns"].dropna()
    return float(times.mean()) / analysis.step_time_ns if len(times) and analysis.step_time_ns else None


# ---------------------------------------------------------------- are weights copied


def _weights_copied(analysis: Analysis, report: Report) -> str:
    variables = [v for v in report.variables if v["kind"] in ("ref", "resource")]
    wholes = compiled_functions(analysis)
    if wholes:
        outside = f" Outside of it: {_weights_outside(variables, report)}" if variables else ""
        return _weights_compiled(wholes) + outside
    if not variables:
        return _weights_without_variables(analysis, report)
    return _weights_outside(variables, report)


def _weights_compiled(wholes: Sequence[Compiled]) -> str:
    """Say what is known where XLA hides the copies: which device holds the variables that it takes."""
    taken = {(one.name, one.device): one for whole in wholes for one in whole.variables}
    names = join_words([printable(whole.name, 80) for whole in wholes], most=2)
    known = f"it takes {join_words(by_device(taken.values()))}" if taken else "it takes no variable"
    return f"The trace cannot tell: XLA compiled {names} as a whole (jit_compile=True) and hides it; {known}."


def _weights_outside(variables: Sequence[dict[str, Any]], report: Report) -> str:
    hosted = [v for v in variables if v["verdict"] != "on-device"]
    whole = [v for v in hosted if v["copied_each_step"] and not v["rows_only"]]
    rows = [v for v in hosted if v["rows_only"]]
    unknown = [v for v in hosted if v["copied_each_step"] is None]
    if whole:
        answer = f"Yes: {count_of(len(whole), 'variable')}, {_total(whole, 'bytes')}, {_how_often(whole, report)}."
        if not any(v["written_by"] for v in variables):
            answer += " The step only reads them (inference): every call copies them again."
        return answer + (f" Of {count_of(len(rows), 'more', 'more')} only rows cross." if rows else "")
    if rows:
        rest = f"Only rows: of {count_of(len(rows), 'table')} ({_total(rows, 'bytes')}) "
        return rest + f"{_total(rows, 'read_bytes_per_step')} cross in each step, not the whole."
    if unknown:
        reason = unknown[0]["reason"] or "it does not say what crosses"
        return sentence(f"The trace cannot tell for {len(unknown)} of {count_of(len(variables), 'variable')}: {reason}")
    return _weights_stay(variables)


def _weights_stay(variables: Sequence[dict[str, Any]]) -> str:
    there = [v for v in variables if v["verdict"] == "on-device"]
    homes = join_words(sorted({str(v["device"]) for v in there}))
    sent = [v for v in there if v["read_bytes_per_step"]]
    back = ""
    if sent:
        whose = "Its value" if len(there) == 1 else f"The value of {len(sent)} of them"
        back = f" {whose} is read elsewhere: {_total(sent, 'read_bytes_per_step')} a step."
    if len(there) == len(variables):
        every = f"all {len(there)} variables" if len(there) > 1 else "the one variable"
        return f"No: {every} ({_total(there, 'bytes')}) {'are' if len(there) > 1 else 'is'} on {homes}.{back}"
    if there:
        rest = count_of(len(variables) - len(there), "other never crosses", "others never cross")
        return f"No: {count_of(len(there), 'variable')} ({_total(there, 'bytes')}) on {homes}; {rest}.{back}"
    return f"No: {count_of(len(variables), 'variable')} on the host, and none of them crosses in the step."


def _how_often(variables: Sequence[dict[str, Any]], report: Report) -> str:
    names = {v["name"] for v in variables}
    rows = [t for t in report.transfers if t["variable"] in names and t["direction"] == "H2D" and not t["rows_only"]]
    counts: dict[tuple[Any, Any], float] = {}
    for row in rows:
        key = (row["variable"], row["dst_device"])
        counts[key] = counts.get(key, 0) + (row["count_per_step"] or 0)
    places = sorted({str(place) for _, place in counts})
    to = f", to {join_words(places)}" if places else ""
    if counts and all(count == 1 for count in counts.values()):
        target = "accelerator" if report.trace["cpu_as_accelerator"] else "GPU"
        return f"once per step and {target} (not once per use){to}"
    most = max(counts.values(), default=0)
    return f"up to {count_of(most, 'copy', 'copies')} of one in a step{to}" if most > 1 else f"in every step{to}"


def _weights_without_variables(analysis: Analysis, report: Report) -> str:
    moved = [t for t in report.transfers if t["category"] == "constant" and t["direction"] == "H2D"]
    if moved:
        what, verb = count_of(len(moved), "constant"), "crosses" if len(moved) == 1 else "cross"
        moving = _total(moved, "bytes_per_step")
        return f"The step has no variables; {what} ({moving}) {verb} to the accelerator in each step."
    flow = analysis.flow
    resident = [node for node, op in enumerate(flow.op) if op == "Const" and flow.on_device[node]]
    sizes = [size for node in resident if (size := flow.value_bytes(node, 0)) is not None]
    if sum(sizes) >= 1000:  # a few shape scalars are no weights
        total = f"{count_of(len(sizes), 'constant')} ({format_bytes(sum(sizes))})"
        return f"No: the step has no variables; {total} {'stays' if len(sizes) == 1 else 'stay'} on the accelerator."
    if analysis.trace.has_graphs:
        return "No: the step has no variables."
    return "The trace cannot tell: it shows no variables, and it has no partition graphs."


def _total(rows: Sequence[dict[str, Any]], key: str) -> str:
    known = [row[key] for row in rows if row[key] is not None]
    if not known:
        return "size unknown"
    return ("at least " if len(known) < len(rows) else "") + format_bytes(round(sum(known)))


# ---------------------------------------------------------------- when is the input copied


def _input_copied(analysis: Analysis, report: Report) -> str:
    devices = set(report.trace["accelerators"])
    arriving = [t for t in report.transfers if t["direction"] == "H2D" and t["dst_device"] in devices]
    inputs = [t for t in arriving if t["category"] == "input"]
    if inputs:
        shown = [_describe_input(row) for row in inputs[:_MAX_INPUTS]]
        more = [f"{len(inputs) - _MAX_INPUTS} more"] if len(inputs) > _MAX_INPUTS else []
        return f"In each step, before its first use: {'; '.join(shown + more)}."
    if report.totals["evidence"] is None:
        if compiled_functions(analysis):
            return "The trace cannot tell: XLA compiled the step as a whole (jit_compile=True) and hides it."
        return "The trace cannot tell: it has neither partition graphs nor copies."
    nameless = [t for t in arriving if t["category"] == "unknown" and t["producer"] is None]
    ahead = _copied_ahead(analysis, len(nameless) > 0)
    if ahead:
        return ahead
    if nameless:
        many = count_of(sum(t["count_per_step"] or 0 for t in nameless), "copy", "copies")
        return f"The trace cannot tell: what {many} a step to the accelerator carry is not recorded."
    return "Not in the step: no feed, argument or dataset element is copied to the accelerator in it."


def _copied_ahead(analysis: Analysis, some_nameless: bool) -> str | None:
    """Say that the iterator itself is on the accelerator; None where no iterator is."""
    flow = analysis.flow
    there = [node for node, op in enumerate(flow.op) if "IteratorGetNext" in op and flow.on_device[node]]
    if not there:
        return None
    homes = join_words([str(analysis.trace.devices["name"].iloc[d]) for d in sorted({flow.device[n] for n in there})])
    names = join_words([f'"{flow.name[node]}"' for node in there], most=_MAX_INPUTS)
    which = " Which of the copies in the step carry one is not recorded." if some_nameless else ""
    verb = "is" if len(there) == 1 else "are"
    return f"Ahead of the step: the iterator ({names}) {verb} on {homes}, so batches are copied there early.{which}"


def _describe_input(row: dict[str, Any]) -> str:
    parts = [input_name(row)]
    parts.append("size unknown" if row["bytes"] is None else format_bytes(row["bytes"]))
    parts.append(f"to {row['dst_device']}")
    if row["start_us"] is not None:
        parts.append(f"{format_ns(round(row['start_us'] * 1000))} after the step's start")
    if row["src_memory"] in ("pinned", "pageable"):
        parts.append(f"from {row['src_memory']} memory")
    if row["consumers"] and row["consumers"][0]:
        reader = " ".join(filter(None, (row["consumer_ops"][0], f'"{row["consumers"][0]}"')))
        others = len(row["consumers"]) - 1
        parts.append(f"for {reader}" + (f" and {others} more" if others else ""))
    return ", ".join(parts)


def input_name(row: dict[str, Any]) -> str:
    """Return what a person calls the producer of an input: the feed "images", the dataset element ..."""
    name, op = row["producer"] or row["tensor"], row["producer_op"] or ""
    output = _OUTPUT.search(row["tensor"] or "") if row["producer"] else None
    name += output[0] if output else ""  # two outputs of one node are two inputs
    feed = _FEED.match(name or "")
    if feed or op.startswith("Placeholder"):
        return f'the feed "{feed.group(1) if feed else name}"'
    if op in ("_Arg", "_DeviceArg"):
        return f'the argument "{name}"'
    if op.startswith(("Iterator", "MultiDeviceIterator", "OptionalGetValue")):
        return f'the dataset element "{name}"'
    return f'"{name}"' + (f" ({op})" if op else "")
