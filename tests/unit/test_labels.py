import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfplace.read.tables.labels import (
    CopyParts,
    OpParts,
    gpu_of_allocator,
    is_copy,
    is_memset,
    parse_annotation,
    parse_copy,
    parse_device_metadata,
    parse_op_label,
    parse_recv_tensor,
)

SENDER = "device=/job:localhost/replica:0/task:0/device:CPU:0"


@pytest.mark.parametrize(
    ("name", "label", "lane", "expected"),
    [
        # TF 0.x to 1.13
        (
            "edge_9_x:MEMCPYDtoH",
            "MEMCPYDtoH 400 bytes (Device to Pinned)",
            "stream:14",
            CopyParts("D2H", 400, "device", "pinned", edge_name="edge_9_x"),
        ),
        (
            "edge_30_IteratorGetNext:MEMCPYHtoD",
            "MEMCPYHtoD 313600 bytes (Pageable to Device)",
            "memcpy",
            CopyParts("H2D", 313_600, "pageable", "device", edge_name="edge_30_IteratorGetNext"),
        ),
        (
            "Train/Model/concat:ConcatV2:MEMCPYHtoD",
            "MEMCPYHtoD 8 bytes (Pageable to Device)",
            "",
            CopyParts("H2D", 8, "pageable", "device", node_name="Train/Model/concat", op="ConcatV2"),
        ),
        (
            "unknown:MEMCPYDtoH",
            "MEMCPYDtoH 8 bytes (Unknown to Pinned)",
            "",
            CopyParts("D2H", 8, None, "pinned"),
        ),
        (
            "edge_3_a:MEMCPYPtoP",
            "MEMCPYPtoP 12 bytes (Device to Device)",
            "",
            CopyParts("P2P", 12, "device", "device", edge_name="edge_3_a"),
        ),
        ("edge_3_a:MEMCPYHtoA", "MEMCPYHtoA 12 bytes (Pageable to Array)", "",
         CopyParts("H2D", 12, "pageable", "array", edge_name="edge_3_a")),
        # TF 1.15 to 2.0
        (
            "edge_58__arg_Placeholder_1_0_9::MemcpyHtoD",
            "1073741824 bytes",
            "context#0/stream#2:MemcpyHtoD",
            CopyParts("H2D", 1_073_741_824, edge_name="edge_58__arg_Placeholder_1_0_9"),
        ),
        (
            f"_arg_Placeholder_0_0/_2:_Send#id=5,{SENDER},async=false#::edge_9__arg_Placeholder_0_0::MemcpyHtoD",
            "64 bytes",
            "",
            CopyParts(
                "H2D", 64, edge_name="edge_9__arg_Placeholder_0_0", node_name="_arg_Placeholder_0_0/_2"
            ),
        ),
        # TF 2.1 to 2.4: the direction is on the stream's lane only
        (
            "edge_9_x",
            "edge_9_x bytes:40 aync to device:1",
            "stream:14<MemcpyD2D>",
            CopyParts("D2D", 40, edge_name="edge_9_x", destination=1),
        ),
        ("edge_9_x", "edge_9_x bytes:40 aync", "memcpy", CopyParts(None, 40, edge_name="edge_9_x")),
        # later: made from an XSpace
        (
            "x/_13:_Send",
            "MemcpyH2D kind_src:pageable kind_dst:device size:2560 dest:0 async:1",
            "stream:14<MemcpyH2D>",
            CopyParts("H2D", 2560, "pageable", "device", node_name="x/_13", destination=0),
        ),
        (
            "IteratorGetNext/_2:_Recv#from=a,to=b#::#edge_name=edge_288_IteratorGetNext#",
            "MemcpyH2D num_bytes:4096 dest:0 async:1",
            "memcpy",
            CopyParts(
                "H2D", 4096, edge_name="edge_288_IteratorGetNext", node_name="IteratorGetNext/_2", destination=0
            ),
        ),
        ("#edge_name=copy#", "MemcpyH2D size:4", "memcpy", CopyParts("H2D", 4)),
        ("MemcpyD2H", "MemcpyD2H kind:Unknown size:16 dest:0 async:1", "memcpy", CopyParts("D2H", 16, destination=0)),
        # damage
        ("", "", "", CopyParts()),
        ("x:MEMCPYDtoH", "MEMCPYDtoH bytes (Device to Pinned)", "",
         CopyParts("D2H", None, "device", "pinned", node_name="x")),
        ("x", "MemcpyH2D size:99999999999999999999999", "", CopyParts("H2D", None, node_name="x")),
    ],
)  # fmt: skip
def test_copies_of_every_era(name, label, lane, expected):
    assert parse_copy(name, label, lane) == expected


def test_what_is_a_copy_and_what_only_sounds_like_one():
    assert is_copy("edge_9_x:MEMCPYDtoH", "")
    assert is_copy("edge_9_x::MemcpyHtoD", "64 bytes")
    assert is_copy("x", "MemcpyH2D size:4")
    assert is_copy("x", "", "stream:14<MemcpyH2D>")
    assert not is_copy("model/memcpy_layer:MatMul", "")
    assert not is_copy("MatMul:MatMul", "void memcpy_like_kernel regs:4")
    assert is_memset("Memset", "Memset size:4")
    assert is_memset("x:MEMSET", "")
    assert not is_memset("memsetter:MatMul", "")


@pytest.mark.parametrize(
    ("name", "label", "expected"),
    [
        ("mul", "mul = Mul(_recv_Placeholder_0, mul/y)", OpParts("Mul", ("_recv_Placeholder_0", "mul/y"))),
        ("x", "x = Const()", OpParts("Const")),
        ("y", "[GPU_0_bfc 3.3MB 3.3MB] y = MatMul(a/_165, b:1, ^c)", OpParts("MatMul", ("a/_165", "b:1", "^c"))),
        ("y", "[cpu 1B][GPU_0_bfc 1024.0MB 1024.0MB] y = Add(a, b)", None),
        ("y", "[cpu 1B] [GPU_0_bfc 1024.0MB 1024.0MB] y = Add(a, b)", OpParts("Add", ("a", "b"))),
        ("y", "y = Add(a, b) @@y:Add#id=1#", OpParts("Add", ("a", "b"))),
        ("y", "z = Add(a, b)", None),
        ("y", "y = Add(a", None),
        ("y", "y = 3", None),
        ("y", "[[[[", None),
        ("y", "", None),
        ("", " = NoOp()", OpParts("NoOp")),
    ],
)
def test_labels_of_host_side_runs(name, label, expected):
    assert parse_op_label(label, name) == expected


@pytest.mark.parametrize(
    ("name", "label", "expected"),
    [
        ("MatMul:MatMul", "", ("MatMul", "MatMul")),
        (f"a/b:MatMul#id=5,{SENDER},async=false#::maxwell_sgemm_128x64", "", ("a/b", "MatMul")),
        ("outer:PartitionedCall#id=1#::inner:Relu#id=1#::void k<a::b>(int)", "", ("inner", "Relu")),
        ("void Eigen::internal::EigenMetaKernel<int>", "", (None, None)),
        ("void k(int)", "void k(int) regs:8@@a:A#id=1#::b/c:MatMul#id=1#", ("b/c", "MatMul")),
        ("volta_sgemm", "", (None, None)),
        ("", "", (None, None)),
        (":::#::#", "@@", (None, None)),
    ],
)
def test_node_and_op_in_whose_name_a_kernel_ran(name, label, expected):
    assert parse_annotation(name, label) == expected


def test_the_device_in_an_annotation_is_where_the_op_ran():
    assert parse_device_metadata(f"id=5,{SENDER},async=false") == "/job:localhost/replica:0/task:0/device:CPU:0"
    assert parse_device_metadata(f"x:_Send#id=5,{SENDER},async=false#::y") == (
        "/job:localhost/replica:0/task:0/device:CPU:0"
    )
    assert parse_device_metadata("MatMul:MatMul") is None


def test_a_tensor_that_came_from_another_worker():
    label = "[1.2MB] edge_3_x from /job:ps/replica:0/task:0/cpu:0 to /job:worker/replica:0/task:1/gpu:0"
    assert parse_recv_tensor(label) == (
        "edge_3_x",
        "/job:ps/replica:0/task:0/cpu:0",
        "/job:worker/replica:0/task:1/gpu:0",
    )
    assert parse_recv_tensor("x = Const()") is None


@given(st.text(), st.text(), st.text())
def test_nothing_fails_on_any_text(name, label, lane):
    parse_copy(name, label, lane)
    is_copy(name, label, lane)
    is_memset(name, label, lane)
    parse_op_label(label, name)
    parse_op_label(f"{name} = {label}", name)
    parse_annotation(name, label)
    parse_device_metadata(label)
    parse_recv_tensor(label)


@given(st.text(alphabet="[]#:@=(), edg_MemcpyHto2D0123456789", max_size=60))
def test_nothing_fails_on_text_made_of_the_format_s_own_signs(text):
    parse_copy(text, text, text)
    parse_op_label(text, "e")
    parse_annotation(text, text)


@pytest.mark.parametrize(
    ("name", "number"),
    [("GPU_0_bfc", 0), ("GPU_12_bfc", 12), ("gpu_bfc", -1), ("GPU_1_cuda_malloc_async", 1), ("cpu", None), ("", None),
     ("cuda_host_bfc", None), ("gpu_host_bfc", None), ("GPU_0_host_bfc", None), ("mklcpu", None), ("xGPU_0_bfc", None)],
)  # fmt: skip
def test_an_allocator_gives_out_memory_of_a_gpu_or_of_the_host(name, number):
    assert gpu_of_allocator(name) == number
