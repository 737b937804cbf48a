"""`tfplace rules`: list the rules, or explain one."""

from __future__ import annotations

import dataclasses
import inspect
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tfplace.diagnose.rule import Rule
from tfplace.diagnose.rules import ALL_RULES
from tfplace.diagnose.thresholds import Thresholds
from tfplace.errors import UsageError
from tfplace.report.output import STDOUT, write_output
from tfplace.report.plain import align, wrap


def run_rules_command(rule: str | None) -> None:
    """Carry out `tfplace rules`."""
    if rule is None:
        heads, rows = ("rule", "finds"), [(one.slug, one.summary) for one in ALL_RULES]
        write_output("\n".join(align(heads, rows, (False, False))) + "\n", STDOUT)
        return
    chosen = next((one for one in ALL_RULES if one.slug == rule), None)
    if chosen is None:
        raise UsageError(f"there is no rule {rule!r}.", f"Rules: {', '.join(one.slug for one in ALL_RULES)}.")
    write_output(explain_rule(chosen), STDOUT)


def explain_rule(rule: Rule) -> str:
    """Return what a rule finds and every threshold it compares with."""
    lines = [rule.slug, *wrap(rule.summary, "  ")]
    about = inspect.getdoc(rule.check)
    if about:
        for paragraph in about.split("\n\n"):
            lines += ["", *wrap(" ".join(paragraph.split()), "  ")]
    used = used_thresholds(rule)
    fields = [field for field in dataclasses.fields(Thresholds) if field.name in used]
    if fields:
        heads = ("threshold", "default", "unit", "why", "source")
        rows = [
            (f.name, f"{f.default:g}", f.metadata["unit"], f.metadata["reason"], f.metadata["source"]) for f in fields
        ]
        lines += ["", *align(heads, rows, (False, True, False, False, False), indent="  ")]
    lines += ["", f"  Fixes, and when it is wrong: docs/rules.md of tfplace's source, section {rule.slug}"]
    return "\n".join(lines) + "\n"


def used_thresholds(rule: Rule) -> set[str]:
    """Return the names of the thresholds that a rule, or a function of `tfplace.diagnose` it calls, reads.

    Read off the code itself, so that the list cannot fall behind it.
    """
    names = {field.name for field in dataclasses.fields(Thresholds)}
    found: set[str] = set()
    queue: list[Any] = [rule.check]
    seen: set[int] = set()
    while queue:
        function = queue.pop()
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        if not function.__module__.startswith("tfplace.diagnose"):
            continue
        for code in _codes(function.__code__):
            found.update(names.intersection(code.co_names))
            queue += _called(code, function.__globals__)
    return found


def _codes(code: CodeType) -> list[CodeType]:
    """Return the code and that of the functions, lambdas and comprehensions inside it."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [code, *(deep for one in inner for deep in _codes(one))]


def _called(code: CodeType, scope: dict[str, Any]) -> list[Any]:
    known = [scope[name] for name in code.co_names if name in scope]
    modules = [value for value in known if isinstance(value, ModuleType)]
    return known + [getattr(module, name) for module in modules for name in code.co_names if hasattr(module, name)]
