"""A GPU that is not there: TensorFlow's own runtime places, partitions and copies for simulated GPUs."""

from tfplace.simulate.device_log import CopyTotals, UncoveredOp, copies, list_uncovered_ops, reset_copies
from tfplace.simulate.errors import SimulateError
from tfplace.simulate.loader import (
    EDGE_COPIES_ONLY,
    Simulation,
    activate,
    environment,
    parse_memory,
    running,
    start,
)

__all__ = [
    "EDGE_COPIES_ONLY",
    "CopyTotals",
    "SimulateError",
    "Simulation",
    "UncoveredOp",
    "activate",
    "copies",
    "environment",
    "list_uncovered_ops",
    "parse_memory",
    "reset_copies",
    "running",
    "start",
]
