"""When each step began and ended, and what the CPU did meanwhile.

Times are `time.time_ns()`: the clock that TensorFlow's step_stats and profiler use.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

_CPU_CLOCK_OF_THREAD = 6  # CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED, linux/posix-timers.h
MOST_THREADS = 256


@dataclass
class Step:
    """One call of the training step.

    Attributes:
        num: Its number among the calls, from 0.
        timed: The profiler (or FULL_TRACE) ran during it.
        start_ns: Absolute.
        end_ns: Absolute; 0 while it runs.
        cpu_time_ns: CPU time of the whole process in it.
        failed: It raised.
    """

    num: int
    timed: bool
    start_ns: int = 0
    end_ns: int = 0
    cpu_time_ns: int = 0
    failed: bool = False
    _cpu_at_start: int = 0
    _threads_at_start: dict[int, int] = field(default_factory=dict)
    _threads_at_end: dict[int, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Take the start times, the wall clock last."""
        if self.timed:
            self._threads_at_start = thread_times()
        self._cpu_at_start = time.process_time_ns()
        self.start_ns = time.time_ns()

    def end(self) -> None:
        """Take the end times, the wall clock first."""
        self.end_ns = time.time_ns()
        self.cpu_time_ns = time.process_time_ns() - self._cpu_at_start
        if self.timed:
            self._threads_at_end = thread_times()

    @property
    def wall_ns(self) -> int:
        """How long it took."""
        return self.end_ns - self.start_ns

    def as_dict(self) -> dict[str, Any]:
        """Return the step as the context part of the file holds it.

        'threads' is {thread name: CPU time in ns}, threads of one name added up; null where not known.
        """
        threads = _used(self._threads_at_start, self._threads_at_end)
        return {
            "num": self.num,
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "wall_ns": self.wall_ns,
            "cpu_time_ns": self.cpu_time_ns,
            "threads": dict(sorted(threads.items(), key=lambda item: -item[1])) or None,
            "failed": self.failed,
        }


def thread_times() -> dict[int, int]:
    """Return {thread id: CPU time in ns} of this process; {} where the system does not tell.

    Source: Linux names the CPU clock of thread `tid` ~tid << 3 | 6; reading it costs 2 us, /proc 18 us.
    """
    if not sys.platform.startswith("linux"):
        return {}
    times: dict[int, int] = {}
    try:
        for name in os.listdir("/proc/self/task")[:MOST_THREADS]:
            try:
                times[int(name)] = time.clock_gettime_ns(~int(name) << 3 | _CPU_CLOCK_OF_THREAD)
            except OSError:  # the thread has ended meanwhile
                continue
    except OSError:
        return {}
    return times


def _used(before: dict[int, int], after: dict[int, int]) -> dict[str, int]:
    python = {thread.native_id: thread.name for thread in threading.enumerate()}
    used: dict[str, int] = {}
    for thread, now in after.items():
        spent = now - before.get(thread, 0)
        if spent > 0:
            name = f"python:{python[thread]}" if thread in python else _system_name(thread)
            used[name] = used.get(name, 0) + spent
    return used


@lru_cache(maxsize=4096)
def _system_name(thread: int) -> str:
    try:
        with open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip() or "unnamed"
    except OSError:
        return "ended"
