"""Finds the training step of a v1 program: the fetches with most nodes behind them that are run again and again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tfplace.capture import guard, hook, slot
from tfplace.capture.schedule import Options
from tfplace.capture.tf_api import tensorflow
from tfplace.capture.v1 import SessionRecording

MOST_KINDS = 64  # different sets of fetches that are looked at


class Kind:
    """Runs of one set of fetches.

    Attributes:
        name: The fetches, joined.
        names: The fetched nodes.
        num_nodes: Nodes behind them.
        runs: How often they were run.
    """

    def __init__(self, name: str, names: frozenset[str], num_nodes: int) -> None:
        self.name = name
        self.names = names
        self.num_nodes = num_nodes
        self.runs = 0


class SessionFinder:
    """Watches `Session.run` of the whole process.

    Args:
        options: `skip` counts runs of the fetches that were found.
        wanted: Name of a node fetched by the step; null = find it.
        functions: The finder of compiled functions, which yields when a session is found to train.

    Attributes:
        kinds: Every set of fetches that was run.
        recording: The capture of the one that was found.
    """

    def __init__(self, options: Options, wanted: str | None, functions: Any) -> None:
        self._options = options
        self._wanted = wanted
        self._functions = functions
        self.guard = guard.Guard()
        self.kinds: dict[Any, Kind] = {}
        self._chosen: Kind | None = None
        self.recording: SessionRecording | None = None
        self._original: Any = None

    def start(self) -> None:
        """Watch from now on."""
        session_class = tensorflow().session.BaseSession
        original = self._original = session_class.run

        def tfplace_run(
            session: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
        ) -> Any:
            current = self.guard.run("session", self._recording_for, session, fetches)
            run = original.__get__(session)
            given = {"feed_dict": feed_dict, "options": options, "run_metadata": run_metadata}
            if current is None:
                return run(fetches, **given)
            return hook.run_traced(current, session, run, fetches, **given)

        session_class.run = tfplace_run

    def finish(self) -> None:
        """Write what there is, and put the original back."""
        if self._original is not None:
            tensorflow().session.BaseSession.run = self._original
        if self.recording is not None:
            self.recording.finish()

    @property
    def runs_needed(self) -> int:
        """How often fetches must be run before a run of them is captured."""
        return max(self._options.skip, 1) + 1

    def _recording_for(self, session: Any, fetches: Any) -> SessionRecording | None:
        """Return the capture that this run belongs to."""
        key = (id(session.graph), _key(fetches))
        kind = self.kinds.get(key)
        if kind is None:
            if len(self.kinds) >= MOST_KINDS:
                return None
            kind = self.kinds[key] = _describe(session.graph, fetches)
        kind.runs += 1
        if kind is self._chosen:
            return None if self.recording is None or self.recording.done else self.recording
        if kind.runs >= self.runs_needed and self._is_better(kind):
            if self.recording is not None:
                self.recording.abandon()
            self._functions.stop()  # one capture per process, and here it is
            self._chosen = kind
            self.recording = SessionRecording(replace(self._options, skip=0), kind.name)
            slot.claim(self.recording)
            return self.recording
        return None

    def _is_better(self, kind: Kind) -> bool:
        if self._wanted is not None:
            return self._wanted in kind.names
        return self._chosen is None or kind.num_nodes > self._chosen.num_nodes


def _key(fetches: Any) -> Any:
    return tuple(sorted(_names(fetches)))


def _names(fetches: Any) -> list[str]:
    return [str(getattr(one, "name", one)) for one in tensorflow().tf.nest.flatten(fetches)]


def _describe(graph: Any, fetches: Any) -> Kind:
    """Count the nodes behind the fetches."""
    names = _names(fetches)
    stack = []
    for name in names:
        element = graph.as_graph_element(name, allow_tensor=True, allow_operation=True)
        stack.append(getattr(element, "op", element))
    seen = set()
    while stack:
        op = stack.pop()
        if op.name not in seen:
            seen.add(op.name)
            stack.extend(tensor.op for tensor in op.inputs)
            stack.extend(op.control_inputs)
    plain = frozenset(name.partition(":")[0] for name in names)
    return Kind(", ".join(sorted(plain))[:200], plain, len(seen))
