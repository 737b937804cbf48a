"""Programs give on simulated GPUs what they give on the CPU, and stand where a GPU build puts them."""

import numpy as np
import pytest
from simulated_runs import both, program

TRAINING = [
    "v1_session",
    "tf_function",
    "keras_conv",
    "attention",
    "lstm",
    "control_flow",
    "v1_control_flow",
    "dataset_in_function",
    "prefetch_to_device",
    "py_function",
    "strings_and_tables",
    "checkpoint",
    "mixed_precision",
    "jit_compile",
    "keras_defaults",
]


@pytest.mark.parametrize("name", TRAINING)
def test_twenty_losses_equal_those_of_the_cpu(name):
    simulated, cpu = both(name)
    assert len(simulated["losses"]) == 20
    np.testing.assert_allclose(simulated["losses"], cpu["losses"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["tf_function", "keras_conv", "attention", "lstm", "checkpoint", "mixed_precision"])
def test_variables_live_on_the_simulated_gpu(name):
    assert both(name)[0]["device"].endswith("/device:GPU:0")


@pytest.mark.parametrize("name", ["mirrored_default", "mirrored_hierarchical", "mirrored_one_device"])
def test_two_replicas_train_as_one_device_does(name):
    simulated, cpu = both(name, "2,2GB")
    assert simulated["devices"] == ["GPU:0", "GPU:1"]
    np.testing.assert_allclose(simulated["losses"], cpu["losses"], rtol=1e-5)


def test_nccl_shows_no_copies_and_copying_strategies_do():
    """A step sends the second replica its inputs (x 256 B and y 32 B) and takes its loss (4 B) back."""
    nccl = program("mirrored_default", "2,2GB")["counted"]
    copying = program("mirrored_one_device", "2,2GB")["counted"]
    # By copying, the gradient (8 floats) crosses there and back in each of the 20 steps, and is no part of NCCL's.
    assert copying["P2P"][0] == nccl["P2P"][0] + 2 * 20
    assert copying["P2P"][1] == nccl["P2P"][1] + 2 * 20 * 32


def test_prefetched_batches_are_on_the_gpu():
    assert both("prefetch_to_device")[0]["devices"] == ["GPU:0"]


def test_strings_and_tables_work_beside_the_gpu():
    simulated, cpu = both("strings_and_tables")
    assert simulated["joined"] == ["A!", "b!", "C!"]
    assert simulated["kept"] == pytest.approx(cpu["kept"], rel=1e-5)


def test_a_checkpoint_restores_gpu_variables():
    assert both("checkpoint")[0]["same"]


def test_an_int32_variable_goes_to_the_cpu_under_soft_placement():
    soft = program("placement", "1,1GB")["soft"]
    assert soft["counter"] == soft["AssignAdd"] == "CPU:0"


def test_a_string_op_is_refused_under_hard_placement():
    kind, message = program("placement", "1,1GB")["hard"]
    assert kind == "InvalidArgumentError"
    assert "no supported kernel for GPU devices" in message
    assert "joined" in message


def test_memory_runs_out_where_it_was_set():
    """Tensors of 64 MB in 1 GB: fifteen, since TensorFlow's allocator does not split a rest below 128 MB."""
    result = program("out_of_memory", "1,1GB")
    assert result["tensors"] == 15
    assert "OOM when allocating tensor with shape[16,1024,1024]" in result["message"]
    assert "by allocator GPU_0_bfc" in result["message"]
    assert result["peak"] <= 1 << 30


def test_an_op_without_a_cpu_kernel_says_so_and_names_the_cure():
    result = program("lstm_cudnn", "1,1GB")
    assert result["error"] == "UnimplementedError"
    assert "CudnnRNNV3" in result["message"]
    assert "use_cudnn=False" in result["message"]


def test_channels_first_convolutions_say_so_and_name_the_cure():
    result = program("channels_first", "1,1GB")
    assert result["error"] == "UnimplementedError"
    assert "data_format='channels_last'" in result["message"]


def test_xla_clusters_say_so_and_name_the_cure():
    result = program("xla_clusters", "1,1GB")
    assert result["error"] == "UnimplementedError"
    assert "tf.config.optimizer.set_jit(False)" in result["message"]


def test_keras_turns_xla_on_by_itself_and_the_step_still_runs():
    assert program("keras_defaults", "1,2GB")["jit"]


def test_virtual_devices_split_one_gpu():
    result = program("virtual_devices", "1,1GB")
    assert result["devices"] == ["/device:GPU:0", "/device:GPU:1"]
    assert (result["total"], result["device"]) == (5.0, "GPU:0")
    assert result["details"]["device_name"].startswith("Simulated GPU (tfplace) ")
    assert result["counted"]["D2D"] == [1, 4]  # Between two devices of one GPU, so not P2P.


def test_sessions_choose_among_the_gpus():
    result = program("fewer_devices", "2,1GB")
    assert result["all"] == ["GPU:0", "GPU:1"]
    assert result["none"] == []
    assert result["one"] == result["visible"] == result["one_virtual"] == ["GPU:0"]
    assert result["virtual"] == ["GPU:0", "GPU:1", "GPU:2"]
    assert "there are 2 simulated GPUs" in result["refused"]
