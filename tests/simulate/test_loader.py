"""Starting in a process, and for scripts that nobody edits; refusing where it is too late."""

import json
import shutil
import signal
import time
from types import SimpleNamespace

import pytest
from simulated_runs import begin, finish, python

from tfplace.errors import UsageError
from tfplace.simulate import loader
from tfplace.simulate.build import library_path
from tfplace.simulate.errors import RealGpuError, TooLateError
from tfplace.simulate.loader import environment, parse_memory

SCRIPT = "import tensorflow as tf; print([d.name[-5:] for d in tf.config.list_logical_devices('GPU')])"


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("16GB", 16 << 30), ("16 gb", 16 << 30), ("512MB", 512 << 20), ("1.5GiB", 3 << 29), (1 << 30, 1 << 30)],
)
def test_memory_sizes(text, num_bytes):
    assert parse_memory(text) == num_bytes


@pytest.mark.parametrize("text", ["", "16", "sixteen", "-1GB", "16XB", "0GB", "1e3GB", "9999999TB", True])
def test_what_is_no_memory_size_is_refused(text):
    with pytest.raises(UsageError):
        parse_memory(text)


@pytest.mark.parametrize("gpus", [0, -1, 65, 1.5, "2", True])
def test_what_is_no_number_of_gpus_is_refused(gpus):
    with pytest.raises(UsageError):
        environment(gpus)


def test_two_hundred_processes_share_one_cache():
    """Each looks the device up, eight at a time; nothing is built again, and nothing is left behind."""
    folder = library_path().parent
    before = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}
    look = "from tfplace.simulate import environment; print(environment()['TF_PLUGGABLE_DEVICE_LIBRARY_PATH'])"
    for _ in range(25):
        together = [begin("-c", look) for _ in range(8)]
        assert {finish(process)[0] for process in together} == {f"{library_path()}\n"}
    assert {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()} == before


def test_two_hundred_starts_in_one_process_are_one():
    code = """
import tfplace.simulate as s
first = s.start(2, "1GB")
assert all(s.start(2, "1GB") == first for _ in range(200))
import tensorflow as tf
x = tf.ones([2])
assert s.start(2, "1024MB") == first == s.running(), "devices are made, and they are these"
print(len(tf.config.list_logical_devices("GPU")))
"""
    assert python(code).split() == ["2"]


def test_another_configuration_is_refused():
    code = """
import tfplace.simulate as s
s.start(2, "1GB")
try: s.start(1, "1GB")
except s.SimulateError as e: print(type(e).__name__, e)
"""
    out = python(code)
    assert out.startswith("TooLateError This process already simulates 2 GPUs of 1GB")


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ("tf.ones([2])", "an eager op or a tf.function ran"),
        ("tf.config.list_logical_devices()", "an eager op or a tf.function ran"),
        ("keep = tf.compat.v1.Session(graph=tf.Graph())", "a tf.compat.v1.Session was opened"),
    ],
)
def test_after_tensorflow_made_its_devices_it_is_too_late(before, reason):
    code = f"""
import tensorflow as tf, tfplace.simulate as s
{before}
try: s.start()
except s.SimulateError as e: print(type(e).__name__, e)
print(s.running(), len(tf.config.list_logical_devices("GPU")))
"""
    out = python(code)
    assert out.startswith("TooLateError")
    assert reason in out
    assert out.endswith("None 0\n")


def test_listing_physical_devices_before_does_no_harm():
    code = """
import tensorflow as tf, tfplace.simulate as s
assert not tf.config.list_physical_devices("GPU")
s.start(3, "1GB")
print(len(tf.config.list_physical_devices("GPU")), len(tf.config.list_logical_devices("GPU")))
"""
    assert python(code) == "3 3\n"


def test_importing_the_package_imports_no_tensorflow():
    code = "import sys, tfplace.simulate as s; print('tensorflow' in sys.modules, s.running())"
    assert python(code) == "False None\n"


def test_an_unedited_script_and_its_child_get_the_gpus():
    variables = environment(2, "1GB")
    child = f"{SCRIPT}; import subprocess, sys; subprocess.run([sys.executable, '-c', {SCRIPT!r}], check=True)"
    out, _ = finish(begin("-u", "-c", child, **variables))
    assert out == "['GPU:0', 'GPU:1']\n" * 2


def test_activate_serves_the_import_that_follows():
    code = f"""
import tfplace.simulate as s
print(s.activate(2, "1GB"))
{SCRIPT}
print(s.running(), s.start(2, "1GB") == s.running())
"""
    described = "Simulation(gpus=2, memory_bytes=1073741824)"
    assert python(code).splitlines() == [described, "['GPU:0', 'GPU:1']", f"{described} True"]


def test_activate_after_the_import_is_too_late():
    code = """
import tensorflow, tfplace.simulate as s
try: s.activate()
except s.SimulateError as e: print(type(e).__name__)
"""
    assert python(code) == "TooLateError\n"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"TFPLACE_SIM_GPUS": "many"}, "TFPLACE_SIM_GPUS=many is not a number of GPUs"),
        ({"TFPLACE_SIM_MEMORY": "much"}, "TFPLACE_SIM_MEMORY=much is not a size"),
    ],
)
def test_wrong_variables_are_told_and_nothing_is_simulated(variables, message):
    out, err = finish(begin("-c", SCRIPT, **{**environment(), **variables}))
    assert message in err
    assert out == "[]\n"


def test_memory_may_be_written_by_hand():
    code = "import tensorflow as tf, tfplace.simulate as s; print(s.running().memory_bytes)"
    out, _ = finish(begin("-c", code, **{**environment(), "TFPLACE_SIM_MEMORY": "2GB"}))
    assert int(out) == 2 << 30


def test_a_library_for_another_tensorflow_does_nothing(tmp_path):
    variables = environment()
    version = python("import tensorflow as tf; print(tf.__version__)").strip()
    path = tmp_path / "libtfplace_simulated_gpu.so"
    shutil.copy(variables["TF_PLUGGABLE_DEVICE_LIBRARY_PATH"], path)
    data = path.read_bytes()
    assert version.encode() + b"\0" in data
    path.write_bytes(data.replace(version.encode() + b"\0", b"0" * len(version) + b"\0"))
    out, err = finish(begin("-c", SCRIPT, **{**variables, "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": str(path)}))
    assert f"built for TensorFlow {'0' * len(version)}, this is {version}" in err
    assert out == "[]\n"


def test_another_plug_in_is_not_overruled():
    with pytest.raises(TooLateError, match=r"/other\.so"):
        environment(base={"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/other.so"})
    again = environment(base={"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": str(library_path())})
    assert again["TFPLACE_SIM_GPUS"] == "1"


def test_a_real_gpu_is_not_hidden_unless_forced(monkeypatch):
    monkeypatch.setattr(loader, "_sees_real_gpu", lambda base: True)
    with pytest.raises(RealGpuError) as caught:
        environment()
    assert "CUDA_VISIBLE_DEVICES=-1" in caught.value.hint
    assert environment(force=True)["TFPLACE_SIM_FORCE"] == "1"


def test_start_refuses_where_the_library_sees_a_real_gpu(monkeypatch):
    calls = []

    def answer(gpus, memory, force):
        calls.append(force)
        return 0 if force else 3

    stub = SimpleNamespace(tfplace_sim_config=lambda memory: 0, tfplace_sim_start=answer)
    monkeypatch.setattr(loader, "_load", lambda path: stub)
    monkeypatch.setattr(loader, "_context_before_devices", lambda: None)
    with pytest.raises(RealGpuError):
        loader.start()
    assert loader.start(force=True).gpus == 1
    assert calls == [0, 1]


def test_a_run_can_be_interrupted():
    code = """
import tfplace.simulate as s
s.start()
import tensorflow as tf
x = tf.ones([64, 64])
step = tf.function(lambda x: tf.matmul(x, x) / 64.0)
x = step(x)
print("running", flush=True)
while True: x = step(x)
"""
    process = begin("-c", code)
    assert process.stdout.readline() == "running\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in err


def test_uncovered_ops_are_those_without_a_cpu_kernel():
    code = """
import json, sys, tfplace.simulate as s
json.dump({o.op: [o.types, o.complete] for o in s.list_uncovered_ops()}, sys.stdout)
"""
    uncovered = json.loads(python(code))
    assert uncovered["CudnnRNNV3"] == [["T=bfloat16", "T=double", "T=float", "T=half"], True]
    assert uncovered["CTCLossV2"] == [[], True]
    assert uncovered["Relu"] == [["T=qint8"], False]
    assert not {"MatMul", "Conv2D", "AddV2", "Identity", "_Send", "VariableV2"} & set(uncovered)


def test_copies_can_be_counted_and_reset():
    code = """
import tfplace.simulate as s
try: s.copies()
except s.SimulateError as e: print(e)
s.start()
import numpy as np, tensorflow as tf
x = tf.constant(np.ones([8, 8], "float32"))
s.reset_copies()
with tf.device("/gpu:0"): y = tf.identity(x)
y.numpy()
print(s.copies()["D2H"], s.copies()["P2P"].count)
"""
    lines = python(code).splitlines()
    assert lines[0].startswith("Nothing is simulated in this process.")
    assert lines[1] == "CopyTotals(count=1, num_bytes=256) 0"


def test_the_library_is_found_again_in_the_process():
    code = """
import tfplace.simulate as s, tfplace.simulate.loader as loader
s.start()
print(loader.loaded_library()._name == str(loader.library_path()))
"""
    assert python(code) == "True\n"
