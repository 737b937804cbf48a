#!/usr/bin/env python3
"""Make the traces in this folder again: real TensorFlow, simulated GPUs, tfplace's own capture. No GPU needed.

    python traces/make.py                                   all, into this folder
    python traces/make.py cifar10_weights_on_cpu --out /tmp one, elsewhere

Each is made in a process of its own, started in the repository's root, so that neither names nor source lines
depend on what was made before or on where the checkout lies. The copies in each trace must be those that the
simulated device itself counted; otherwise nothing is written. Two are made on logical CPU devices, for those who
have no compiler: CPU:0 is the host and CPU:1 plays the accelerator.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
GPU_MEMORY = "16GB"
CPU_ACCELERATOR = "/device:CPU:1"
WARM_UP = 2  # untraced steps before the first traced one
MOST_BYTES = 300_000
MACHINE_PATH = re.compile(rb"""(?<![\w.:/{}-])/(?:home|root|work|tmp|usr|opt|var|mnt|Users)/[^\s"']*""")
COPY = re.compile(r"Memcpy(H2D|D2H|D2D|P2P).* size:(\d+)")

ENVIRONMENT = {
    "TF_ENABLE_ONEDNN_OPTS": "0",  # oneDNN picks ops by the CPU it finds: without it all machines give one graph
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TFPLACE_STRICT": "1",  # a fault of the capture must not pass
    "PYTHONPATH": str(ROOT),
}


@dataclass(frozen=True)
class Case:
    """One trace.

    Attributes:
        program: Module in `programs/`.
        kind: 'session' (v1), 'function' (TF2) or 'keras' (`fit`).
        file: Name of the file to write; the suffix chooses the encoding. With {} one per traced step.
        arguments: Given to the program by name.
        gpus: Simulated GPUs; 0 = logical CPU devices.
        soft: Soft placement, in a Session (everywhere else it is the default).
        steps: Steps to trace, a file each.
        says_accelerator: On logical CPUs: the file says which plays the accelerator.
        has_kernels: The file holds the registrations of the GPU kernels; left out where they would fill it.
    """

    program: str
    kind: str
    file: str
    arguments: dict[str, str] = field(default_factory=dict)
    gpus: int = 1
    soft: bool = False
    steps: int = 1
    says_accelerator: bool = True
    has_kernels: bool = True

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files that are written."""
        return tuple(self.file.format(n) for n in range(1, self.steps + 1))

    @property
    def accelerator(self) -> str:
        """The device that the program is given."""
        return "/gpu:0" if self.gpus else CPU_ACCELERATOR


CASES = {
    "cifar10_weights_on_cpu": Case("cifar10_v1", "session", "cifar10_weights_on_cpu.pbtxt", {"weights_on": "/cpu:0"}),
    "cifar10_weights_on_gpu": Case("cifar10_v1", "session", "cifar10_weights_on_gpu.pbtxt", {"weights_on": "/gpu:0"}),
    "cifar10_function_weights_on_cpu": Case(
        "cifar10_function", "function", "cifar10_function_weights_on_cpu.pb", {"weights_on": "/cpu:0"}
    ),
    "cifar10_function_weights_on_gpu": Case(
        "cifar10_function", "function", "cifar10_function_weights_on_gpu.pb", {"weights_on": "/gpu:0"}
    ),
    "two_towers_cpu_weights": Case(
        "two_towers_v1", "session", "two_towers_cpu_weights.pb", {"second_accelerator": "/gpu:1"}, gpus=2
    ),
    "mirrored_two_gpus": Case(
        "mirrored_function", "function", "mirrored_two_gpus.pb", {"second_accelerator": "/gpu:1"}, gpus=2
    ),
    "embedding_on_cpu": Case("embedding_v1", "session", "embedding_on_cpu.pbtxt"),
    "embedding_function_on_cpu": Case("embedding_function", "function", "embedding_function_on_cpu.pb"),
    "keras_embedding_on_cpu": Case("keras_embedding", "keras", "keras_embedding_on_cpu.pb"),
    "inference_cpu_weights": Case("inference_v1", "session", "inference_cpu_weights.pbtxt"),
    "inference_function_cpu_weights": Case("inference_function", "function", "inference_function_cpu_weights.pb.gz"),
    "input_feed": Case("input_v1", "session", "input_feed.pbtxt", {"source": "feed"}),
    "input_feed_steps": Case("input_v1", "session", "input_feed_steps/step_{}.pb", {"source": "feed"}, steps=3),
    "input_dataset": Case("input_v1", "session", "input_dataset.pbtxt", {"source": "dataset"}),
    "keras_fit": Case("keras_fit", "keras", "keras_fit.pb", {"prefetch": "no"}),
    "keras_fit_prefetch_to_device": Case(
        "keras_fit", "keras", "keras_fit_prefetch_to_device.pb", {"prefetch": "to_device"}
    ),
    "int32_variable_soft_placement": Case(
        "int32_variable_v1", "session", "int32_variable_soft_placement.pbtxt", soft=True
    ),
    "string_table": Case("string_table_function", "function", "string_table.pbtxt"),
    "ping_pong_cpu_op": Case("ping_pong_v1", "session", "ping_pong_cpu_op.pbtxt", soft=True),
    "constant_on_cpu": Case("constant_v1", "session", "constant_on_cpu.pbtxt"),
    "fetch_all_gradients": Case("fetch_gradients_v1", "session", "fetch_all_gradients.pbtxt"),
    "global_step_on_cpu": Case("global_step_v1", "session", "global_step_on_cpu.pbtxt"),
    "cpu_accelerator_cifar10": Case(
        "cifar10_v1", "session", "cpu_accelerator_cifar10.pbtxt", {"weights_on": "/cpu:0"}, gpus=0
    ),
    "cpu_accelerator_embedding": Case(
        "embedding_function", "function", "cpu_accelerator_embedding.pb", gpus=0, says_accelerator=False
    ),
}


# ---- capturing: each yields the path of a file when it is complete ----------------------------------------


def capture_session(case: Case, program: Any, paths: list[str], accelerator: str | None) -> Any:
    """Run a v1 program, each traced step into its own file."""
    import tensorflow as tf

    import tfplace

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        v1.set_random_seed(1)
        fetches, feed = program.build(case.accelerator, **case.arguments)
        devices = {} if case.gpus else {"CPU": 2}
        config = v1.ConfigProto(allow_soft_placement=case.soft, device_count=devices, inter_op_parallelism_threads=1)
        with v1.Session(config=config) as session:
            session.run([v1.global_variables_initializer(), v1.tables_initializer()])
            for _ in range(WARM_UP):
                session.run(fetches, feed)
            for path in paths:
                tfplace.trace_session(session, path, skip=0, steps=1, accelerator=accelerator)
                session.run(fetches, feed)
                yield path


def capture_function(case: Case, program: Any, paths: list[str], accelerator: str | None) -> Any:
    """Run a TF2 program; graphs come from the first call, times from the one after the warm-up."""
    import tensorflow as tf

    import tfplace

    if not case.gpus:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    function, arguments = program.build(case.accelerator, **case.arguments)
    step = tfplace.trace(paths[0], skip=WARM_UP, steps=1, accelerator=accelerator)(function)
    with tf.device(None if case.gpus else case.accelerator):  # the default for ops that ask for none, as a GPU is
        for _ in range(WARM_UP + 1):
            step(*arguments)
    yield paths[0]


def capture_keras(case: Case, program: Any, paths: list[str], accelerator: str | None) -> Any:
    """Let a program `fit`, one batch of it captured."""
    import tfplace

    callback = tfplace.KerasCallback(paths[0], batch=WARM_UP, steps=1, accelerator=accelerator)
    program.fit(case.accelerator, callback, **case.arguments)
    yield paths[0]


CAPTURES: dict[str, Callable[..., Any]] = {
    "session": capture_session,
    "function": capture_function,
    "keras": capture_keras,
}


# ---- copies ----------------------------------------------------------------------------------------------


def device_counted() -> dict[str, list[int]]:
    """Return {direction: [copies, bytes]} of the traced step as the simulated device itself counted them."""
    from tfplace import simulate

    totals: dict[str, list[int]] = {}
    for origin in ("tensor", "upload"):
        for direction, total in simulate.copies(traced=True, origin=origin).items():
            if total.count:
                add(totals, direction, total.count, total.num_bytes)
    return totals


def copies_in(metadata: Any) -> dict[str, list[int]]:
    """Return the same of step_stats."""
    totals: dict[str, list[int]] = {}
    for lane in metadata.step_stats.dev_stats:
        if lane.device.endswith("/memcpy"):
            for row in lane.node_stats:
                found = COPY.match(row.timeline_label)
                if found is None:
                    raise SystemExit(f"a row of {lane.device} is no copy: {row.timeline_label!r}")
                add(totals, found[1], 1, int(found[2]))
    return totals


def copies_read(path: Path) -> dict[str, list[int]]:
    """Return the same as tfplace reads it from the written file."""
    import tfplace

    totals: dict[str, list[int]] = {}
    copies = tfplace.load(path).copies
    for direction, size in zip(copies["direction"], copies["num_bytes"], strict=True):
        add(totals, direction, 1, int(size))
    return totals


def add(totals: dict[str, list[int]], direction: str, count: int, size: int) -> None:
    counted = totals.setdefault(direction, [0, 0])
    counted[0] += count
    counted[1] += size


def require_equal(what: str, found: dict[str, list[int]], counted: dict[str, list[int]]) -> None:
    if found != counted:
        raise SystemExit(f"{what}: copies {found}, but the device counted {counted}")


# ---- files -----------------------------------------------------------------------------------------------


def slim(metadata: Any) -> None:
    """Drop what no report uses and what is different in each run: cost model, addresses, allocator records."""
    metadata.ClearField("cost_graph")
    metadata.step_stats.dev_stats.sort(key=lambda device: device.device)
    for device in metadata.step_stats.dev_stats:
        device.node_stats.sort(key=lambda node: (node.all_start_nanos, node.node_name))
        for node in device.node_stats:
            for unused in ("memory", "memory_stats", "referenced_tensor"):
                node.ClearField(unused)
            for output in node.output:
                for unused in ("ptr", "allocation_id", "has_single_reference"):
                    output.tensor_description.allocation_description.ClearField(unused)


def read_captured(path: str) -> tuple[Any, dict[str, Any]]:
    """Return RunMetadata and context of a binary file."""
    from tensorflow.core.protobuf import config_pb2

    from tfplace.read.context import binary_context

    data = Path(path).read_bytes()
    context, notes = binary_context(data)
    if not context or notes or context["faults"]:
        raise SystemExit(f"the capture is faulty: {notes} {context.get('faults')}")
    metadata = config_pb2.RunMetadata.FromString(data)
    metadata.DiscardUnknownFields()
    return metadata, context


def check_file(path: Path) -> None:
    """Refuse a file that is too large for the repository or names a folder of this machine."""
    data = path.read_bytes()
    if len(data) >= MOST_BYTES:
        raise SystemExit(f"{path.name} has {len(data):,} bytes, more than {MOST_BYTES:,}")
    plain = gzip.decompress(data) if path.suffix == ".gz" else data
    found = MACHINE_PATH.search(plain)
    if found or str(ROOT).encode() in plain:
        raise SystemExit(f"{path.name} names a folder of this machine: {found[0] if found else ROOT!r}")


def finish(name: str, case: Case, captured: str, target: Path) -> None:
    """Slim one captured trace, check it against the device, and write it."""
    from tfplace.capture.writer import write_trace

    metadata, context = read_captured(captured)
    slim(metadata)
    context["script"] = f"traces/make.py {name}"
    if not case.has_kernels:
        del context["kernels"]
    if case.gpus:
        context["device_counted"] = counted = device_counted()
        require_equal(f"{name}, step_stats", copies_in(metadata), counted)
    staged = Path(captured).with_name(target.name)
    write_trace(str(staged), metadata, context)
    check_file(staged)
    if case.gpus:
        require_equal(f"{name}, as tfplace reads it", copies_read(staged), counted)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(staged, target)
    print(f"{target}: {target.stat().st_size:,} bytes; copies {context.get('device_counted', 'not counted')}")


def make(name: str, out: Path) -> None:
    """Make one case's files in `out`, in this process."""
    import tensorflow as tf

    from tfplace import simulate

    case = CASES[name]
    if case.gpus:
        simulate.start(case.gpus, GPU_MEMORY)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    sys.path.insert(0, str(HERE / "programs"))
    program = importlib.import_module(case.program)
    accelerator = "CPU:1" if not case.gpus and case.says_accelerator else None
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / f"{number}.pb") for number in range(case.steps)]
        done = CAPTURES[case.kind](case, program, paths, accelerator)
        for path, file in zip(done, case.files, strict=True):
            finish(name, case, path, out / file)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the example traces again (needs TensorFlow, no GPU).")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to make (all): {', '.join(CASES)}")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to (this folder)")
    parser.add_argument("--here", action="store_true", help="make the one NAME in this very process")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(CASES))
    if unknown:
        parser.error(f"no such trace: {', '.join(unknown)}")
    if options.here:
        make(options.names[0], options.out)
        return 0
    failed = 0
    for name in options.names or CASES:
        command = [sys.executable, __file__, name, "--out", str(options.out.resolve()), "--here"]
        done = subprocess.run(command, env=os.environ | ENVIRONMENT, cwd=ROOT, check=False)
        if done.returncode:
            print(f"{name}: not made (exit {done.returncode})", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
