"""One capture of compiled functions, from its first call to its file.

All ways of asking for one (decorator, `with capture`, Keras callback, record) drive a `Recording` by
`enter` before a step and `leave` after it; neither raises an Exception.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from typing import Any

from tfplace.capture import context as contexts
from tfplace.capture import funnel, guard
from tfplace.capture.assemble import Collected, write_recording
from tfplace.capture.clock import Step
from tfplace.capture.graphs import GraphStore
from tfplace.capture.profiler import ProfilerBusyError, ProfilerLease
from tfplace.capture.schedule import Options
from tfplace.capture.slot import Holder, claim, release
from tfplace.capture.tf_api import tensorflow

NOT_STEPS = ("OutOfRangeError", "StopIteration")  # the end of the data: the call did no step


class Recording(Holder):
    """Captures calls of a step; see the module's docstring.

    Args:
        options: What to capture.
        step_name: For the file and for messages.

    Attributes:
        done: Nothing more is captured: complete, given up, or never begun because another was on.
        ends_on_error: Whoever begins a step is not told when it fails (a Keras callback), so that the calls tell.
        marked: {id: FuncGraph} whose calls are the step (a decorator below tf.function).
    """

    def __init__(self, options: Options, step_name: str) -> None:
        self.options = options
        self.step_name = step_name
        self.guard = guard.Guard()
        self.guard.when_exhausted(self._give_up)
        self.notes = contexts.Notes()
        self.store = GraphStore(late_first=options.skip == 0)
        self.done = False
        self.ends_on_error = False
        self.marked: dict[int, Any] = {}
        self.on_done: list[Any] = []
        self._lease = ProfilerLease()
        self._profile_started_ns = 0
        self._steps: list[Step] = []
        self._own_ns: list[int] = []
        self._current: Step | None = None
        self._began_ns = 0
        self._is_live = False
        self._lock = threading.RLock()
        self._pid = os.getpid()

    @property
    def has_timed_steps(self) -> bool:
        """True once a step was timed."""
        return any(step.timed for step in self._steps)

    # ---- around a step -------------------------------------------------------------------------------

    def enter(self) -> Step | None:
        """A step is about to begin; null = it is not captured (another thread's, a nested one, or done)."""
        if self.done:
            return None
        try:
            step: Step | None = self.guard.run("before", self._enter)
            return step
        except BaseException:  # Ctrl-C in our own code: leave nothing behind, let it go on
            self._give_up()
            raise

    def leave(self, step: Step, error: BaseException | None) -> None:
        """That step is over; `error` is what it raised."""
        if step is not self._current:
            return  # ended before, by an error in a call inside it
        try:
            self.guard.run("after", self._leave, step, error)
        except BaseException:
            self._give_up()
            raise
        finally:
            self._current = None

    def finish(self) -> None:
        """Write what there is and stop; does nothing the second time."""
        with self._lock:
            if self.done:
                return
            self.done = True
        try:
            self.guard.run("finish", self._finish)
        finally:
            self._restore()

    def go_live(self) -> bool:
        """Collect graphs from now on, before the first step; False where another capture is on."""
        if self._is_live or self.done:
            return not self.done
        try:
            if not claim(self):
                self.done = True
                guard.warn(
                    f"'{self.step_name}' is not captured: another capture is on. Capture one step at a time "
                    "(one decorator, around all that a step does)."
                )
                self._say_done()
                return False
            self._is_live = True
            atexit.register(self.finish)
            self.guard.run("graph collection", self.store.open)
            funnel.install(self)
            return True
        except BaseException:  # half begun is not begun: leave nothing behind, whoever called us
            self._give_up()
            raise

    def forget(self) -> None:
        """In a forked child: stop without a file."""
        self.done = True
        funnel.forget()
        release(self)
        atexit.unregister(self.finish)

    def _enter(self) -> Step | None:
        began = time.perf_counter_ns()
        with self._lock:
            if self.done or self._current is not None:
                return None
            if not self.go_live():
                return None
            number = len(self._steps)
            timed = self.options.is_timed(number)
            step = Step(number, timed)
            self._current = step
        try:
            if timed and not self._lease.is_on and number == self.options.skip:
                self.guard.run("profiler start", self._start_profiler)
            self._began_ns = time.perf_counter_ns() - began
            step.begin()
            return step
        except BaseException:
            self._current = None  # nobody will end it, and a later step must be able to begin
            raise

    def _leave(self, step: Step, error: BaseException | None) -> None:
        step.end()
        began = time.perf_counter_ns()
        if error is not None and type(error).__name__ in NOT_STEPS:
            return
        step.failed = error is not None
        self._steps.append(step)
        if step.timed:
            self._own_ns.append(self._began_ns + time.perf_counter_ns() - began)
        if error is not None:
            self.notes.add("step-failed", contexts.failed_text(step.num, error))
            self.guard.run("graphs after an error", self.store.settle_after_error)
        if error is not None or len(self._steps) >= self.options.last:
            self.finish()

    def _start_profiler(self) -> None:
        self._profile_started_ns = time.time_ns()
        try:
            self._lease.start()
        except ProfilerBusyError:
            self.notes.add("profiler-busy", contexts.PROFILER_BUSY)
            guard.warn("another profiler is running: the trace will have no times. End it around the traced steps.")

    # ---- what the funnel tells -----------------------------------------------------------------------

    def before_top(self, function: Any) -> Any:
        """Begin a step where the function was marked by a decorator below tf.function."""
        if self.marked and id(getattr(function, "_func_graph", None)) in self.marked:
            return self.enter()
        return self._current if self.ends_on_error else None

    def after_top(self, ticket: Any, failed: bool) -> None:
        """End such a step; one that a callback began ends here only if it failed."""
        if failed or not self.ends_on_error:
            self.leave(ticket, current_error() if failed else None)

    def before_run(self, function: Any, name: bytes, inputs: list[Any]) -> Any:
        """Note a run of a function."""
        if self.done:
            return None
        ticket = self.guard.run("graphs", self.store.before_run, function, name, inputs)
        if ticket is not None and self._current is not None:
            ticket.function.steps.add(self._current.num)
        return ticket

    def after_run(self, ticket: Any) -> None:
        """Fetch its graphs."""
        ticket.restore_options()  # first, whatever happens next
        self.guard.run("graphs", self.store.after_run, ticket)

    # ---- the end -------------------------------------------------------------------------------------

    def _finish(self) -> None:
        if os.getpid() != self._pid or not self._is_live:
            return
        began = time.perf_counter_ns()
        space = self.guard.run("profiler stop", self._lease.stop)
        self.guard.run("graphs", self.store.collect_rest)
        if self._lease.gave_way:
            self.notes.add("profiler-given-up", "the program started its own profiler, so timing ended early.")
        if self._steps and not self.has_timed_steps:
            text = f"{self.step_name} ran {len(self._steps)} times and the first {self.options.skip} are not timed"
            cure = "give a smaller batch=" if self.options.made_by == "KerasCallback" else "write skip=0"
            self.notes.add("not-timed", f"{text}: {cure} to time them.")
        collected = Collected(
            options=self.options,
            step_name=self.step_name,
            functions=[one for one in self.store.functions.values() if self._belongs(one)],
            steps=self._steps,
            own_ns=self._own_ns,
            space=space,
            profile_started_ns=self._profile_started_ns,
            finish_began_ns=began,
            notes=self.notes,
            guard=self.guard,
        )
        write_recording(collected)

    def _belongs(self, function: Any) -> bool:
        """Tell whether a function ran in a timed step (or in any, where none was timed)."""
        if self.has_timed_steps:
            return bool(function.steps & {step.num for step in self._steps if step.timed})
        return bool(function.steps)

    def _give_up(self) -> None:
        self.done = True
        self._restore()

    def _restore(self) -> None:
        """Put everything back as it was; safe to call twice."""
        self._lease.abandon()
        if self._is_live:
            self._is_live = False
            with contextlib.suppress(Exception):
                funnel.remove(self)
            with contextlib.suppress(Exception):
                self.store.close()
            atexit.unregister(self.finish)
        release(self)
        self.store.functions.clear()
        self.marked.clear()
        self._say_done()

    def _say_done(self) -> None:
        actions, self.on_done = self.on_done, []
        for action in actions:
            with contextlib.suppress(Exception):
                action()


def current_error() -> BaseException | None:
    """Return the exception that is being handled or raised through a `finally`."""
    return sys.exc_info()[1]


def outermost_graph() -> Any:
    """Return the FuncGraph of the outermost function being traced, null when executing eagerly."""
    tf = tensorflow()
    graph, found = tf.ops.get_default_graph(), None
    while isinstance(graph, tf.func_graph.FuncGraph):
        found, graph = graph, graph.outer_graph
    return found
