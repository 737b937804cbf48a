"""Finds the training step of a program that says nothing about it, and captures some of its steps.

The step is the compiled function with most nodes that touches variables and repeats; one step lasts from
one call of it to the next, so that everything a loop does between belongs to it. A function without variables
(inference with constants, a custom op's benchmark) is the step where it repeats often and no other came by then.
Where a larger function, or one with variables, repeats later (a training after an evaluation), it is captured instead.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import Any

from tfplace.capture import context as contexts
from tfplace.capture import funnel, guard, recording, slot
from tfplace.capture.assemble import Collected, write_recording
from tfplace.capture.clock import Step
from tfplace.capture.graphs import GraphStore, called_functions
from tfplace.capture.profiler import ProfilerBusyError, ProfilerLease
from tfplace.capture.recording import current_error
from tfplace.capture.schedule import Options
from tfplace.capture.sources import watch_variables
from tfplace.capture.tf_api import tensorflow

PLAIN_CALLS = 10  # after which a function without variables is taken for the step: helpers seldom run so often
WATCH_ON = 200  # calls of the captured step after which no larger function is waited for any more


@dataclass
class Candidate:
    """A compiled function that may be the step; retraced forms of one function are one candidate."""

    name: str
    num_nodes: int
    has_variables: bool
    calls: int = 0
    captured: bool = False
    last: Step | None = None

    @property
    def rank(self) -> tuple[bool, int]:
        """The higher, the more likely it is the step."""
        return self.has_variables, self.num_nodes


class StepFinder:
    """Watches all compiled functions of the process.

    Args:
        options: `skip` counts calls of the step that was found.
        wanted: Name of the function to take as the step; null = find it.
    """

    def __init__(self, options: Options, wanted: str | None = None) -> None:
        self.options = options
        self.guard = guard.Guard()
        self.guard.when_exhausted(self.stop)
        self.candidates: dict[str, Candidate] = {}
        self.chosen: Candidate | None = None
        self.written = False
        self._wanted = wanted
        self._store = GraphStore()
        self._lease = ProfilerLease()
        self._steps: list[Step] = []
        self._open: Step | None = None
        self._profile_started_ns = 0
        self._notes = contexts.Notes()
        self._own_ns: list[int] = []
        self._on = False
        self._unwrapped: Any = None
        self._capturing = False
        self._lock = threading.RLock()
        self._thread = 0
        self._pid = os.getpid()

    def start(self) -> None:
        """Watch from now on; graphs are asked for as soon as the program itself has initialised TensorFlow."""
        if not slot.claim(self):
            return
        self._on = True
        watch_variables()
        funnel.install(self)
        context_class = tensorflow().context.Context
        original = context_class.ensure_initialized

        def tfplace_ensure_initialized(context: Any) -> None:
            original(context)
            self._unwrap()
            # initialising it ourselves would make the program's own device configuration raise
            if self._on:
                self.guard.run("graph collection", self._store.open)

        self._unwrapped = original
        context_class.ensure_initialized = tfplace_ensure_initialized

    def _unwrap(self) -> None:
        original, self._unwrapped = self._unwrapped, None
        if original is not None:
            tensorflow().context.Context.ensure_initialized = original

    def stop(self) -> None:
        """Put everything back."""
        if not self._on:
            return
        self._on = self._capturing = False
        self._unwrap()
        self._lease.abandon()
        self.guard.run("stop", funnel.remove, self)
        self.guard.run("stop", self._store.close)
        slot.release(self)

    def forget(self) -> None:
        """In a forked child: do nothing more."""
        self._on = self._capturing = False
        funnel.forget()
        slot.release(self)

    def finish(self) -> None:
        """The program is over: write what there is, then stop."""
        if not self._on or os.getpid() != self._pid:
            return
        with self._lock:
            try:
                if self._capturing:
                    self.guard.run("finish", self._complete, True)
                elif not self.written:
                    self.guard.run("finish", self._write_untimed)
            finally:
                self.stop()

    # ---- what the funnel tells -----------------------------------------------------------------------

    def before_top(self, function: Any) -> Any:
        """A call of a compiled function: perhaps the boundary between two steps."""
        if not self._on:
            return None
        return self.guard.run("before", self._before_top, function)

    def after_top(self, ticket: Any, failed: bool) -> None:
        """The step has lasted at least until now."""
        self.guard.run("after", self._after_top, ticket, current_error() if failed else None)

    def before_run(self, function: Any, name: bytes, inputs: list[Any]) -> Any:
        """Note a run."""
        if not self._on:
            return None
        ticket = self.guard.run("graphs", self._store.before_run, function, name, inputs)
        if ticket is not None and self._open is not None:
            ticket.function.steps.add(self._open.num)
        return ticket

    def after_run(self, ticket: Any) -> None:
        """Fetch its graphs."""
        ticket.restore_options()  # first, whatever happens next
        self.guard.run("graphs", self._store.after_run, ticket)

    def _before_top(self, function: Any) -> Candidate | None:
        with self._lock:
            candidate = self._candidate(function)
            if candidate is self.chosen and self._capturing:
                self._boundary()
            elif self._is_next(candidate):
                self._begin(candidate)
            elif not candidate.captured:
                candidate.last = Step(candidate.calls, timed=False)  # to compare with: a step without the profiler
                candidate.last.begin()
            candidate.calls += 1
            if candidate is self.chosen and candidate.captured and candidate.calls > WATCH_ON:
                self.stop()
            return candidate if candidate is self.chosen and self._capturing else None

    def _candidate(self, function: Any) -> Candidate:
        graph = function._func_graph
        name = str(graph.name)
        candidate = self.candidates.get(name)
        if candidate is None:
            inside = [getattr(atomic, "_cached_graph", None) for atomic in called_functions(function)]
            nodes = len(graph.get_operations()) + sum(len(one.get_operations()) for one in inside if one is not None)
            resources = any(tensor.dtype.name == "resource" for tensor in graph.inputs)
            candidate = self.candidates[name] = Candidate(name, nodes, resources)
        return candidate

    def _is_next(self, candidate: Candidate) -> bool:
        if candidate.captured or candidate.calls < max(self.options.skip, 1 if self._wanted is None else 0):
            return False
        if self._wanted is not None:
            return self._is_wanted(candidate)
        if not candidate.has_variables and candidate.calls < PLAIN_CALLS:
            return False
        return self.chosen is None or candidate.rank > self.chosen.rank

    def _is_wanted(self, candidate: Candidate) -> bool:
        return self._wanted in (None, candidate.name, candidate.name.removeprefix("__inference_"))

    # ---- one capture ---------------------------------------------------------------------------------

    def _begin(self, candidate: Candidate) -> None:
        self._lease.abandon()
        self.chosen, self._capturing = candidate, True
        self._steps, self._own_ns, self._notes = [], [], contexts.Notes()
        if candidate.last is not None:
            candidate.last.end()
            self._steps.append(candidate.last)
        self._thread = threading.get_ident()
        for function in self._store.functions.values():
            function.steps.clear()
        self._profile_started_ns = time.time_ns()
        try:
            self._lease.start()
        except ProfilerBusyError:
            self._notes.add("profiler-busy", contexts.PROFILER_BUSY)
        self._next_step()

    def _next_step(self) -> None:
        number = self.chosen.calls if self.chosen else 0
        self._open = Step(number, timed=True)
        self._open.begin()

    def _boundary(self) -> None:
        if threading.get_ident() != self._thread or self._open is None:
            return
        began = time.perf_counter_ns()
        self._open.end()
        self._steps.append(self._open)
        self._open = None
        if sum(step.timed for step in self._steps) >= self.options.steps:
            self._complete(False)
        else:
            self._next_step()
        self._own_ns.append(time.perf_counter_ns() - began)

    def _after_top(self, candidate: Candidate, error: BaseException | None) -> None:
        if self._open is None or candidate is not self.chosen or threading.get_ident() != self._thread:
            return
        self._open.end()  # for now: the next call of the step moves it
        if error is not None and type(error).__name__ not in recording.NOT_STEPS:
            self._open.failed = True
            self._notes.add("step-failed", contexts.failed_text(self._open.num, error))
            self.guard.run("graphs after an error", self._store.settle_after_error)
            self._complete(True)

    def _complete(self, with_open: bool) -> None:
        self._capturing = False
        if with_open and self._open is not None and self._open.end_ns:
            self._steps.append(self._open)
        self._open = None
        if self.chosen is not None:
            self.chosen.captured = True
        space = self.guard.run("profiler stop", self._lease.stop)
        self.guard.run("graphs", self._store.collect_rest)
        if self._lease.gave_way:
            self._notes.add("profiler-given-up", "the program started its own profiler, so timing ended early.")
        self._write(self._steps, space, lambda function: bool(function.steps))

    def _write_untimed(self) -> None:
        known = [one for one in self.candidates.values() if self._is_wanted(one)]
        largest = max(known, key=lambda one: one.rank, default=None)
        if largest is None:
            return  # whoever watches knows of sessions too, and says so
        self.chosen = largest
        times = "once" if largest.calls == 1 else f"{largest.calls} times"
        least = self.options.skip if largest.has_variables or self._wanted else max(self.options.skip, PLAIN_CALLS)
        needed = max(least, 0 if self._wanted else 1) + 1
        self._notes.add("not-timed", f"{largest.name} ran {times}, too few to time a step: {needed} are needed.")
        self._write([], None, lambda function: _python_name(function) == largest.name)

    def _write(self, steps: list[Step], space: bytes | None, belongs: Any) -> None:
        collected = Collected(
            options=self.options,
            step_name=self.chosen.name if self.chosen else "",
            functions=[one for one in self._store.functions.values() if belongs(one)],
            steps=steps,
            own_ns=self._own_ns,
            space=space,
            profile_started_ns=self._profile_started_ns,
            finish_began_ns=time.perf_counter_ns(),
            notes=self._notes,
            guard=self.guard,
        )
        write_recording(collected)
        self.written = True


def _python_name(function: Any) -> str:
    return str(getattr(getattr(function.concrete, "graph", None), "name", ""))
