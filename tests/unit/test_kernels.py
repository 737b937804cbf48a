"""Which ops have GPU kernels: the shipped table, answers stored in a trace, the installed TensorFlow."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfplace.analyze import kernels
from tfplace.analyze.kernels import KernelRegistry, Registration, from_context, load_shipped

ROOT = Path(__file__).parents[2]
HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None


@pytest.fixture(scope="module")
def shipped() -> KernelRegistry:
    return load_shipped()


# ---- the shipped table: facts read off TensorFlow 2.21's own registrations ---------------------------


def test_shipped_table_names_its_tensorflow(shipped: KernelRegistry) -> None:
    assert shipped.name == "TensorFlow 2.21.0 Linux wheel (CUDA build)"
    assert shipped.tf_version == "2.21.0"


def test_shipped_table_is_small() -> None:
    assert kernels.SHIPPED.stat().st_size < 100_000


def test_shipped_table_knows_every_op_that_has_a_kernel(shipped: KernelRegistry) -> None:
    assert len(shipped.ops) == 1536
    assert sum(bool(registrations) for registrations in shipped.ops.values()) == 820


@pytest.mark.parametrize(
    ("op", "types", "answer"),
    [
        ("MatMul", {"T": "float32"}, True),
        ("MatMul", {"T": "int32"}, False),
        ("Conv2D", {"T": "float32"}, True),
        ("Conv2D", {"T": "float64"}, True),
        ("StringJoin", {}, False),
        ("DecodeJpeg", {}, False),
        ("LookupTableFindV2", {"Tin": "string", "Tout": "int64"}, False),
        ("Print", {"T": "float32"}, False),
        ("PyFunc", {}, False),
        ("NoSuchOp", {}, None),
        ("", {}, None),
        ("BoostedTreesPredict", {}, None),  # the wheel has the op's name and no kernel for any device
    ],
)
def test_has_gpu_kernel(shipped: KernelRegistry, op: str, types: dict[str, str], answer: bool | None) -> None:
    assert shipped.has_gpu_kernel(op, types) is answer


@pytest.mark.parametrize("op", ["VariableV2", "VarHandleOp"])
def test_int32_and_string_variables_cannot_live_on_a_gpu(shipped: KernelRegistry, op: str) -> None:
    assert shipped.has_gpu_kernel(op, {"dtype": "float32"}) is True
    assert shipped.has_gpu_kernel(op, {"dtype": "int64"}) is True
    assert shipped.has_gpu_kernel(op, {"dtype": "int32"}) is False
    assert shipped.has_gpu_kernel(op, {"dtype": "string"}) is False


def test_handle_in_host_memory_does_not_make_a_variable_compute_on_the_host(shipped: KernelRegistry) -> None:
    assert shipped.host_memory_args("VarHandleOp", {"dtype": "float32"}) == ("resource",)
    assert shipped.computes_on_host("VarHandleOp", {"dtype": "float32"}) is False
    assert shipped.computes_on_host("ReadVariableOp", {"dtype": "float32"}) is False


def test_int32_addition_is_booked_on_the_gpu_and_computes_on_the_host(shipped: KernelRegistry) -> None:
    assert shipped.has_gpu_kernel("AddV2", {"T": "int32"}) is True
    assert shipped.host_memory_args("AddV2", {"T": "int32"}) == ("x", "y", "z")
    assert shipped.computes_on_host("AddV2", {"T": "int32"}) is True
    assert shipped.computes_on_host("AddV2", {"T": "float32"}) is False


def test_dynamic_stitch_has_a_gpu_kernel_now_and_its_parallel_twin_works_in_host_memory(
    shipped: KernelRegistry,
) -> None:
    assert shipped.host_memory_args("DynamicStitch", {"T": "float32"}) == ("indices",)
    assert shipped.computes_on_host("DynamicStitch", {"T": "float32"}) is False
    assert shipped.host_memory_args("ParallelDynamicStitch", {"T": "float32"}) == ("data", "indices", "merged")
    assert shipped.computes_on_host("ParallelDynamicStitch", {"T": "float32"}) is True


@pytest.mark.parametrize(
    ("rewrite", "types"),
    [
        ("_FusedMatMul", {"T": "float32"}),  # has GPU kernels of its own
        ("_FusedMatMul", {"T": "float64"}),  # has none for float64: MatMul has
        ("_FusedConv3D", {"T": "float32"}),  # has none at all: Conv3D has
        ("_MklConv2D", {"T": "float32"}),
        ("_MklNativeConv2D", {"T": "float32"}),
        ("_MklNativeFusedConv2D", {"T": "float32"}),
        ("_MklNativePadWithConv2D", {"T": "float32"}),
        ("_MklConv2DBackpropFilterWithBias", {"T": "float32"}),
        ("_MklNativeFusedBatchNormV3", {"T": "float32"}),
        ("_MklFusedBatchMatMulV2", {"T": "float32"}),
    ],
)
def test_rewrites_for_the_cpu_answer_as_the_op_they_replaced(
    shipped: KernelRegistry, rewrite: str, types: dict[str, str]
) -> None:
    assert shipped.has_gpu_kernel(rewrite, types) is True


def test_constraints_that_are_not_types_hold_too(shipped: KernelRegistry) -> None:
    types = {"Tparams": "float32", "Tindices": "int32"}
    assert shipped.has_gpu_kernel("GatherNd", types) is True
    assert shipped.has_gpu_kernel("GatherNd", {**types, "bad_indices_policy": "IGNORE"}) is True
    assert shipped.has_gpu_kernel("GatherNd", {**types, "bad_indices_policy": "ERROR"}) is False


def test_rewrite_of_an_op_without_gpu_kernel_is_no_and_of_no_known_op_is_null(shipped: KernelRegistry) -> None:
    assert shipped.has_gpu_kernel("_MklQuantizedConv2D", {}) is False
    assert shipped.has_gpu_kernel("_MklLayerNorm", {}) is None
    assert shipped.has_gpu_kernel("_FusedNothing", {}) is None


def test_whole_attributes_of_a_node_may_be_given(shipped: KernelRegistry) -> None:
    attrs = {"T": "float32_ref", "_class": ("loc:@w",), "shape": "[2]", "transpose_a": False, "value": {"dtype": "x"}}
    assert shipped.has_gpu_kernel("MatMul", attrs) is True
    assert shipped.has_gpu_kernel("MatMul", {**attrs, "T": "string"}) is False


# ---- how a kernel is chosen: hand-made registrations ---------------------------------------------------


def registry(*registrations: Registration) -> KernelRegistry:
    return KernelRegistry("hand-made", None, {"Op": registrations, "HostOp": ()})


FLOAT = {"T": frozenset({"float32"})}
INT = {"T": frozenset({"int32"})}


def test_default_kernel_is_chosen_only_where_no_gpu_kernel_fits() -> None:
    both = registry(Registration(FLOAT, ("a",)), Registration({}, ("b",), fallback=True))
    assert both.host_memory_args("Op", {"T": "float32"}) == ("a",)
    assert both.host_memory_args("Op", {"T": "int32"}) == ("b",)


def test_highest_priority_is_chosen() -> None:
    assert registry(Registration(FLOAT, ("a",)), Registration(FLOAT, ("b",), priority=1)).host_memory_args(
        "Op", {"T": "float32"}
    ) == ("b",)


def test_labelled_kernel_serves_only_nodes_that_ask_for_it() -> None:
    labelled = registry(Registration(FLOAT, ("a",), label="host"))
    assert labelled.has_gpu_kernel("Op", {"T": "float32"}) is False
    assert labelled.has_gpu_kernel("Op", {"T": "float32", "_kernel": "host"}) is True


def test_list_of_types_must_be_accepted_as_a_whole() -> None:
    numbers = registry(Registration({"T": frozenset({"float32", "int32"})}))
    assert numbers.has_gpu_kernel("Op", {"T": ("float32", "int32")}) is True
    assert numbers.has_gpu_kernel("Op", {"T": ("float32", "string")}) is False


def test_partial_types_give_what_all_possible_kernels_share() -> None:
    two = registry(Registration(FLOAT, ("a",)), Registration(INT, ("a", "b"), on_host=True))
    assert two.has_gpu_kernel("Op", {}) is True
    assert two.host_memory_args("Op", {}) == ("a",)
    assert two.computes_on_host("Op", {}) is None
    assert two.computes_on_host("Op", {"T": "int32"}) is True
    assert two.computes_on_host("Op", {"T": None}) is None


def test_op_without_gpu_kernel_has_no_arguments_in_host_memory() -> None:
    assert registry().host_memory_args("HostOp", {}) == ()
    assert registry().computes_on_host("HostOp", {}) is False
    assert registry().host_memory_args("Unknown", {}) == ()
    assert registry().computes_on_host("Unknown", {}) is None


def test_kernels_that_differ_in_one_attribute_are_merged_and_covered_defaults_left_out() -> None:
    def kernel(device: str, *numbers: int, host: tuple[str, ...] = ()) -> SimpleNamespace:
        constraint = [
            SimpleNamespace(
                name=name, allowed_values=SimpleNamespace(list=SimpleNamespace(type=[number], s=[], i=[], b=[]))
            )
            for name, number in zip("TI", numbers, strict=True)
        ]
        return SimpleNamespace(
            op="Op", device_type=device, constraint=constraint, host_memory_arg=list(host), label="", priority=0
        )

    registered = [
        kernel("GPU", 1, 3),
        kernel("GPU", 1, 9),
        kernel("GPU", 2, 3),
        kernel("GPU", 2, 9),
        kernel("DEFAULT", 2, 9),
        kernel("CPU", 7, 3),
        SimpleNamespace(op="HostOp", device_type="CPU"),
    ]
    merged = kernels._merge_kernels(registered, {}, lambda number: f"t{number}")
    assert merged == {"HostOp": (), "Op": (Registration({"T": frozenset({"t1", "t2"}), "I": frozenset({"t3", "t9"})}),)}


@pytest.mark.parametrize(
    ("outputs", "inputs", "host", "answer"),
    [
        ([("z", 0)], [("x", 0)], ("x", "z"), True),
        ([("z", 0)], [("x", 0)], ("x",), False),
        ([("handle", 20)], [], ("handle",), False),  # resource: not data
        ([], [("x", 0)], ("x",), True),
        ([], [("handle", 20), ("x", 0)], ("handle",), False),
        ([], [], (), False),
    ],
)
def test_on_host_means_all_data_given_else_all_data_taken(
    outputs: list[tuple[str, int]], inputs: list[tuple[str, int]], host: tuple[str, ...], answer: bool
) -> None:
    op_def = SimpleNamespace(
        output_arg=[SimpleNamespace(name=name, type=number) for name, number in outputs],
        input_arg=[SimpleNamespace(name=name, type=number) for name, number in inputs],
    )
    assert kernels._on_host(op_def, host) is answer


# ---- stored in a trace -------------------------------------------------------------------------------


def test_answers_stored_in_a_trace_are_used() -> None:
    stored = from_context(
        {
            "tf_version": "2.19.1",
            "ops": {
                "AddV2": [{"types": {"T": ["int32"]}, "host_memory": ["x", "y", "z"], "on_host": True}],
                "StringJoin": [],
            },
        }
    )
    assert stored.name == "TensorFlow 2.19.1, as stored in the trace"
    assert stored.has_gpu_kernel("AddV2", {"T": "int32"}) is True
    assert stored.has_gpu_kernel("AddV2", {"T": "float32"}) is False
    assert stored.computes_on_host("AddV2", {"T": "int32"}) is True
    assert stored.host_memory_args("AddV2", {"T": "int32"}) == ("x", "y", "z")
    assert stored.has_gpu_kernel("StringJoin", {}) is False
    assert stored.has_gpu_kernel("MatMul", {}) is None


@pytest.mark.parametrize(
    "context",
    [{}, {"ops": None}, {"ops": []}, {"ops": {"A": 3}}, {"ops": {"A": [3]}}, {"ops": {"A": [{"types": 1}]}}],
)
def test_malformed_answers_leave_the_op_unknown(context: dict[str, object]) -> None:
    assert from_context(context).has_gpu_kernel("A", {}) is None
    assert from_context(context).name == "TensorFlow of unknown version, as stored in the trace"


def test_one_malformed_op_does_not_hide_the_others() -> None:
    stored = from_context({"ops": {"A": [{"types": 1}], "B": [{"types": {}}]}})
    assert stored.has_gpu_kernel("A", {}) is None
    assert stored.has_gpu_kernel("B", {}) is True


# ---- the installed TensorFlow ------------------------------------------------------------------------


def fake_tensorflow(monkeypatch: pytest.MonkeyPatch, gpu_kernels: int) -> None:
    registered = [SimpleNamespace(op="Op", device_type="GPU")] * gpu_kernels
    modules = {
        "tensorflow": SimpleNamespace(__version__="9.8.7"),
        "tensorflow.python.framework.kernels": SimpleNamespace(
            get_all_registered_kernels=lambda: SimpleNamespace(kernel=registered)
        ),
    }
    monkeypatch.setattr(kernels.importlib, "import_module", lambda name: modules.get(name, SimpleNamespace()))


def test_build_without_cuda_is_refused_with_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_tensorflow(monkeypatch, 470)
    with pytest.raises(kernels.KernelsUnavailableError, match=r"TensorFlow 9\.8\.7 .* registers 470 GPU kernels") as e:
        kernels.from_tensorflow()
    assert "pip install tensorflow" in e.value.hint


def test_missing_tensorflow_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(kernels.importlib, "import_module", missing)
    with pytest.raises(kernels.KernelsUnavailableError, match="TensorFlow cannot be imported"):
        kernels.from_tensorflow()


@pytest.mark.skipif(not HAS_TENSORFLOW, reason="TensorFlow is not installed")
def test_script_makes_the_shipped_table_again(tmp_path: Path) -> None:
    made = tmp_path / "table.json"
    command = [sys.executable, str(ROOT / "tools" / "make_kernel_table.py"), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if "built without CUDA" in done.stderr:
        pytest.skip("this TensorFlow is built without CUDA")
    assert done.returncode == 0, done.stderr
    version = importlib.metadata.version("tensorflow")
    if version != load_shipped().tf_version:
        pytest.skip(f"the table is of another TensorFlow than {version}")
    assert made.read_text(encoding="utf-8") == kernels.SHIPPED.read_text(encoding="utf-8")
