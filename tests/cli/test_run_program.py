"""`tfplace record` and `tfplace simulate`: the program is its own, the trace and the report come after it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
needs_tensorflow = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is missing")
needs_compiler = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("g++") is None, reason="the simulated GPU needs Linux and g++"
)

TRAIN = """
import sys
import numpy as np
import tensorflow as tf

with tf.device("/CPU:0"):
    kernel = tf.Variable(tf.ones([64, 32]), name="dense/kernel")

@tf.function
def train_step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.matmul(x, kernel)))
    kernel.assign_sub(0.1 * tape.gradient(loss, kernel))
    return loss

for _ in range(6):
    loss = train_step(tf.constant(np.ones([8, 64], np.float32)))
print("arguments", sys.argv[1:])
print("to stderr", file=sys.stderr)
if "--fail" in sys.argv:
    raise ValueError("the program's own")
sys.exit(7)
"""


def run(folder: Path, *words: str, code: str = TRAIN) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(code)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(
        [sys.executable, "-m", "tfplace", *words], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


@needs_tensorflow
@needs_compiler
def test_simulate_shows_where_everything_would_go(tmp_path: Path) -> None:
    own = ("--gpus", "2", "--gpu-memory", "4GB", "--bus-gbps", "1")
    done = run(tmp_path, "simulate", *own, "train.py", "--epochs", "1", "-o", "x")
    assert done.returncode == 7, done.stderr
    assert done.stdout.startswith("arguments ['--epochs', '1', '-o', 'x']\n")
    assert "to stderr" in done.stderr
    assert "2 x Simulated GPU (tfplace) 4 GB" in done.stdout
    assert "on CPU:0 is copied to GPU:0 in every step" in " ".join(done.stdout.split())
    assert "made at train.py:7" in " ".join(done.stdout.split())
    assert "measured" not in done.stdout
    assert "at 1 GB/s (estimate)" in " ".join(done.stdout.split())
    report = subprocess.run(
        [sys.executable, "-m", "tfplace", "report", "trace.pb", "--format", "json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    document = json.loads(report.stdout)
    [kernel] = document["variables"]
    assert (kernel["name"], kernel["verdict"], kernel["read_bytes_per_step"]) == ("dense/kernel", "unnecessary", 8192)
    assert document["totals"]["per_step"]["h2d"] == {
        "count": 2,  # the variable and the batch of 8 x 64
        "bytes": 8192 + 2048,
        "time_us": None,
        **{k: v for k, v in document["totals"]["per_step"]["h2d"].items() if k == "unknown_sizes"},
    }


@needs_tensorflow
def test_record_takes_the_speed_of_the_bus_too(tmp_path: Path) -> None:
    code = """
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
with tf.device("/CPU:0"):
    kernel = tf.Variable(tf.ones([640, 320]), name="dense/kernel")

@tf.function
def train_step(x):
    with tf.device("/CPU:1"):
        return tf.reduce_sum(tf.matmul(x, kernel))

for _ in range(6):
    train_step(tf.ones([8, 640]))
"""
    done = run(tmp_path, "record", "--accelerator", "CPU:1", "--bus-gbps", "2.5", "train.py", code=code)
    assert done.returncode == 0, done.stderr
    assert "at 2.5 GB/s (estimate)" in " ".join(done.stdout.split())
    refused = run(tmp_path, "record", "--bus-gbps", "0", "train.py", code=code)
    assert refused.returncode == 2


@needs_tensorflow
def test_a_step_that_xla_compiles_is_reported_on_with_its_own_cure(tmp_path: Path) -> None:
    """On a plain CPU its trace holds no event and no graph: all that is known stands in what capture stored."""
    code = """
import tensorflow as tf
kernel = tf.Variable(tf.ones([8, 8]), name="dense/kernel")

@tf.function(jit_compile=True)
def train_step(x):
    kernel.assign_sub(0.1 * tf.matmul(x, kernel))

for _ in range(6):
    train_step(tf.ones([8, 8]))
"""
    done = run(tmp_path, "record", "train.py", code=code)
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert "1 XLA cluster in this step hides what runs inside" in told
    assert "dense/kernel (float32 [8,8], 256 B) is handed in from CPU:0, made at train.py:3" in told
    assert "jit_compile=False" in told
    assert "RunOptions" not in told


@needs_tensorflow
def test_an_error_of_the_program_is_shown_as_python_shows_it(tmp_path: Path) -> None:
    done = run(tmp_path, "record", "--no-report", "-o", "t.pbtxt", "train.py", "--fail")
    assert done.returncode == 1
    assert done.stderr.rstrip().splitlines()[-1].startswith(("ValueError: the program's own", "tfplace: wrote"))
    assert "ValueError: the program's own" in done.stderr
    assert "tfplace/capture" not in done.stderr
    assert (tmp_path / "t.pbtxt").read_bytes().startswith(b"# tfplace: ")


EAGER = "import tensorflow as tf; tf.Variable(1.0).assign_add(1.0)"
ONE_RUN = """
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
w = tf.get_variable("w", [3])
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(tf.assign_add(w, [1.0, 1.0, 1.0], name="step"))
"""


@needs_tensorflow
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("print('hello')", "the program did not import TensorFlow."),
        (EAGER, "the program ran no compiled function (tf.function, Keras fit) and no Session.run. Put @tf.function"),
        (ONE_RUN, "Session.run of 'step' ran 1 time, and 3 are needed."),
        ("import os; os._exit(0)", "the program ended before it could be (killed, os._exit,"),
    ],
    ids=["no tensorflow", "eager", "one session run", "exits at once"],
)
def test_a_missing_trace_is_an_error_though_the_program_succeeded(tmp_path: Path, code: str, reason: str) -> None:
    done = run(tmp_path, "record", "train.py", code=code)
    assert done.returncode == 2
    [told] = [line for line in done.stderr.splitlines() if "tfplace" in line]
    assert told.startswith(f"tfplace: error: no trace was written: {reason}")
    assert not (tmp_path / "trace.pb").exists()


@needs_tensorflow
@pytest.mark.parametrize(("code", "ended"), [("import sys; sys.exit(7)", 7), ("raise ValueError('own')", 1)])
def test_a_program_that_fails_without_a_trace_keeps_its_exit_code(tmp_path: Path, code: str, ended: int) -> None:
    done = run(tmp_path, "record", "train.py", code=code)
    assert done.returncode == ended
    assert "tfplace: no trace was written: " in done.stderr
    assert "tfplace: error" not in done.stderr


@needs_tensorflow
def test_capture_that_was_switched_off_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFPLACE_DISABLE", "1")
    done = run(tmp_path, "record", "train.py", code="print('hello')")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert "tfplace: no trace was written: TFPLACE_DISABLE is set." in done.stderr


@needs_tensorflow
@pytest.mark.parametrize("command", ["record", "simulate"])
def test_a_misspelt_step_is_answered_with_the_names_that_ran(tmp_path: Path, command: str) -> None:
    if command == "simulate" and shutil.which("g++") is None:
        pytest.skip("the simulated GPU needs g++")
    code = TRAIN.replace("sys.exit(7)", "")
    done = run(tmp_path, command, "--step", "train_stp", "train.py", code=code)
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith(
        "tfplace: error: no trace was written: no step named 'train_stp' ran. "
        "Name one of these in --step, or leave it out: 'train_step'."
    )


def test_an_existing_trace_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "trace.pb").write_text("precious")
    done = run(tmp_path, "record", "train.py", code="print('never runs')")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--force" in done.stderr
    assert (tmp_path / "trace.pb").read_text() == "precious"


@pytest.mark.parametrize(
    "words", [["record"], ["simulate"], ["record", "missing.py"], ["simulate", "--gpus", "x", "a.py"]], ids=" ".join
)
def test_what_cannot_run_is_one_sentence(tmp_path: Path, words: list[str]) -> None:
    done = run(tmp_path, *words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0].startswith("tfplace: error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_is_the_programs(tmp_path: Path) -> None:
    code = """
import time
try:
    print("up", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    raise SystemExit(5)
"""
    (tmp_path / "train.py").write_text(code)
    process = subprocess.Popen(
        [sys.executable, "-m", "tfplace", "record", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 5


KERAS = """
import keras
import numpy as np

model = keras.Sequential([keras.layers.Dense(4)])
model.compile("sgd", "mse")
model.fit(np.ones([32, 8], "float32"), np.ones([32, 4], "float32"), batch_size=4, verbose=0)
print("jit", model.jit_compile)
"""


@needs_tensorflow
@needs_compiler
@pytest.mark.parametrize(("words", "jit"), [([], True), (["--no-jit"], False)])
def test_keras_compiles_its_step_once_there_is_a_gpu_unless_told_not_to(
    tmp_path: Path, words: list[str], jit: bool
) -> None:
    done = run(tmp_path, "simulate", *words, "train.py", code=KERAS)
    assert done.returncode == 0, done.stderr
    assert f"jit {jit}\n" in done.stdout
    assert ("xla-hides-placement  info" in done.stdout) == jit
    assert ("--no-jit" in done.stdout) == jit


@needs_tensorflow
@needs_compiler
def test_ops_that_cannot_run_are_listed(tmp_path: Path) -> None:
    done = run(tmp_path, "simulate", "--coverage")
    assert done.returncode == 0, done.stderr
    first, _, *ops = done.stdout.splitlines()
    assert first.startswith(f"{len(ops)} ops have a GPU kernel")
    assert any(line.startswith("  CudnnRNNV3: ") for line in ops)


@needs_tensorflow
def test_a_module_runs_as_with_python_m(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "work.py").write_text("import sys; print(__name__, sys.argv[1:])")
    done = run(tmp_path, "record", "-m", "package.work", "-m", "x")
    assert done.stdout == "__main__ ['-m', 'x']\n"


REFUSED = [
    ("--stpes 2 train.py", "No such option '--stpes'. (Did you mean one of: '--skip', '--step', '--steps'?)"),
    ("nowhere.py", "nowhere.py is not a file. Name the script to run"),
    ("old.pb", "old.pb is no Python program. Name the script to run; `tfplace report` reads traces."),
    ("-o x.json train.py", "'x.json': the file name says the format"),
    ("-o - train.py", "'-': the file name says the format"),
    ("--steps 0 train.py", "steps=0 is not a whole number of at least 1."),
    ("--skip -1 train.py", "skip=-1 is not a whole number of at least 0."),
    ("--accelerator banana train.py", "accelerator 'banana' is no logical CPU device. Write CPU:1"),
    ("-o old.pb train.py", "old.pb exists already. Name another with -o, or add --force to overwrite it."),
    ("train.py -o x.pb", "-o stands after the program and goes to it: tfplace's own options come before."),
]


@pytest.mark.parametrize(("words", "sentence"), REFUSED)
def test_what_cannot_work_is_one_sentence_before_the_program_starts(tmp_path: Path, words: str, sentence: str) -> None:
    for name in ("old.pb", "trace.pb"):
        (tmp_path / name).write_bytes(b"\0a trace")
    done = run(tmp_path, "record", *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert sentence in line
    assert (tmp_path / "old.pb").read_bytes() == (tmp_path / "trace.pb").read_bytes() == b"\0a trace"


@needs_tensorflow
def test_an_option_after_the_program_goes_to_it_and_a_word_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "record", "--no-report", "train.py", "-o", "x.pb")
    assert "arguments ['-o', 'x.pb']" in done.stdout
    assert "tfplace: wrote trace.pb (-o stands after the program and goes to it" in done.stderr
