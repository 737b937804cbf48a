#!/usr/bin/env python3
"""Make tfplace/data/gpu_kernels_tf2_21.json from the kernel registry of the installed TensorFlow.

Needs the CUDA-built Linux wheel (`pip install tensorflow==2.21.*`), no GPU:

    python tools/make_kernel_table.py

The file holds, once each, the sets of dtypes and the registrations that use them by number, and for
every op that has a kernel on any device the numbers of its GPU registrations; [] = none.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tfplace.analyze.kernels import SHIPPED, KernelRegistry, Registration, from_tensorflow


def pack(registry: KernelRegistry) -> str:
    """Return the table as JSON, one op a line."""
    sets: dict[str, int] = {}
    rows: dict[str, int] = {}

    def number(registration: Registration) -> int:
        row: dict[str, Any] = {
            "types": {
                name: sets.setdefault(" ".join(sorted(values)), len(sets))
                for name, values in sorted(registration.types.items())
            }
        }
        for key in ("host_memory", "on_host", "fallback", "label", "priority"):
            value = getattr(registration, key)
            if value:
                row[key] = value
        return rows.setdefault(json.dumps(row), len(rows))

    ops = {op: [number(one) for one in registrations] for op, registrations in sorted(registry.ops.items())}
    head = {"name": f"TensorFlow {registry.tf_version} Linux wheel (CUDA build)", "tf_version": registry.tf_version}
    lines = [
        "{",
        *(f"{json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()),
        '"sets": [',
        ",\n".join(json.dumps(one) for one in sets),
        '],\n"registrations": [',
        ",\n".join(rows),
        '],\n"ops": {',
        ",\n".join(f"{json.dumps(op)}: {json.dumps(numbers, separators=(',', ':'))}" for op, numbers in ops.items()),
        "}",
        "}",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Read the command line, write the file, say what is in it."""
    parser = argparse.ArgumentParser(description="Make the table of GPU kernels that tfplace ships.")
    parser.add_argument("-o", "--output", type=Path, default=SHIPPED, help=f"file to write ({SHIPPED.name})")
    options = parser.parse_args()
    registry = from_tensorflow()
    options.output.write_text(pack(registry), encoding="utf-8")
    gpu = sum(bool(registrations) for registrations in registry.ops.values())
    print(f"{options.output}: {len(registry.ops)} ops, {gpu} with GPU kernels, {options.output.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
