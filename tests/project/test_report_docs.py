"""The documents keep step with the code: every key of the JSON report, every error slug, every command's help."""

from __future__ import annotations

import contextlib
import importlib
import json
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

import tfplace
from tests import report_samples as samples
from tfplace.errors import TfplaceError
from tfplace.report.json_report import render_json
from tfplace.report.summary import summarize

ROOT = Path(__file__).parents[2]
SECTIONS = {
    "report": lambda document: document,
    "trace": lambda document: document["trace"],
    "devices[]": lambda document: document["devices"][0],
    "placement[]": lambda document: document["placement"][0],
    "totals": lambda document: document["totals"],
    "totals.per_step.*": lambda document: document["totals"]["per_step"]["h2d"],
    "variables[]": lambda document: document["variables"][0],
    "transfers[]": lambda document: document["transfers"][0],
    "findings[]": lambda document: document["findings"][0],
    "rules[]": lambda document: document["rules"][0],
    "answers": lambda document: document["answers"],
    "notes[]": lambda document: document["notes"][0],
}
TYPES: dict[str, Any] = {
    "string": str,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "list": list,
    "list of strings": list,
    "list of numbers": list,
    "list of objects": list,
}


def documented() -> dict[str, dict[str, str]]:
    """Return {section: {key: type}} of docs/report-json.md."""
    sections: dict[str, dict[str, str]] = {}
    for part in (ROOT / "docs/report-json.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        rows = re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", part, re.M)
        sections[part.splitlines()[0]] = dict(rows)
    return sections


def document() -> Any:
    return json.loads(render_json(summarize(samples.analysis(), samples.outcomes())))


def test_every_section_is_documented() -> None:
    assert list(documented()) == list(SECTIONS)


@pytest.mark.parametrize("section", SECTIONS)
def test_keys_are_documented_in_the_order_in_which_they_come(section: str) -> None:
    written = SECTIONS[section](document())
    assert list(documented()[section]) == list(written)


@pytest.mark.parametrize("section", SECTIONS)
def test_values_have_the_documented_types(section: str) -> None:
    for key, value in SECTIONS[section](document()).items():
        assert value is None or isinstance(value, TYPES[documented()[section][key]]), key


def test_the_contract_of_the_first_version_is_kept() -> None:
    """Keys of tfplace.report/1 as first published: none may go."""
    first = {
        "report": "schema trace devices placement totals variables transfers findings rules answers notes",
        "trace": "source format tf_version simulated steps traced_steps",
        "devices[]": "name kind task model",
        "placement[]": "device nodes ops",
        "totals": "per_step gpu_busy_share step_time_us exposed_copy_us",
        "totals.per_step.*": "count bytes time_us",
        "variables[]": "name device requested_device dtype shape bytes verdict reason copied_each_step "
        "read_bytes_per_step written_bytes_per_step destinations source",
        "transfers[]": "tensor edge direction src_device dst_device bytes count_per_step category variable producer "
        "producer_op consumers time_us exposed_us src_memory dst_memory evidence",
        "findings[]": "rule severity title detail fix evidence cost_us_per_step bytes_per_step confidence",
        "rules[]": "rule outcome reason",
        "answers": "cpu_bottleneck weights_copied input_copied",
        "notes[]": "slug text count",
    }
    written = document()
    for section, keys in first.items():
        assert set(keys.split()) <= set(SECTIONS[section](written)), section
    assert written["schema"] == "tfplace.report/1"
    assert set(written["totals"]["per_step"]) == {"h2d", "d2h", "d2d", "p2p"}


def all_slugs() -> set[str]:
    for module in pkgutil.walk_packages(tfplace.__path__, "tfplace."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(TfplaceError):  # parts of capture are made of TensorFlow's classes
                importlib.import_module(module.name)
    found, queue = set(), [TfplaceError]
    while queue:
        kind = queue.pop()
        found.add(kind.slug)
        queue += kind.__subclasses__()
    return found


def test_every_error_slug_has_a_section_with_cause_and_cure() -> None:
    text = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    sections = {part.split("\n")[0]: part for part in text.split("\n## ")[1:]}
    assert set(sections) == all_slugs()
    for slug, part in sections.items():
        assert "\nCause: " in part, slug
        assert "\nCure: " in part, slug


def test_errors_are_in_alphabetical_order_after_the_base() -> None:
    slugs = re.findall(r"^## (.+)$", (ROOT / "docs/errors.md").read_text(encoding="utf-8"), re.M)
    assert slugs == sorted(slugs)
