"""Runs programs in forked children of a process that has imported TensorFlow but not started it.

Importing TensorFlow takes seconds; a fork of it a few milliseconds. One JSON request per line on stdin:
{"program", "args", "env", "cwd", "out", "err", "timeout"}; one JSON answer per line: {"code"}.
"""

import atexit
import json
import os
import runpy
import signal
import sys
import time
import traceback

import numpy  # noqa: F401
import tensorflow  # noqa: F401
from tensorflow.python.client import timeline  # noqa: F401


def run_child(request):
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    for number, key in ((1, "out"), (2, "err")):
        target = os.open(request[key], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(target, number)
        os.close(target)
    sys.argv = [request["program"], *request["args"]]
    sys.path.insert(0, os.path.dirname(request["program"]))
    code = 0
    try:
        runpy.run_path(request["program"], run_name="__main__")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except KeyboardInterrupt:
        traceback.print_exc()
        code = 130
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def wait_for(child, timeout):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 124


def main():
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            run_child(request)
        answers.write(json.dumps({"code": wait_for(child, request["timeout"])}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
