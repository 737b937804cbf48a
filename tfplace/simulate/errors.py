"""What can stop a simulation before it starts, each with its cure."""

from __future__ import annotations

from tfplace.errors import TfplaceError


class SimulateError(TfplaceError):
    """The simulated GPU cannot be used here or now."""

    slug = "simulate"


class UnsupportedPlatformError(SimulateError):
    """The simulated GPU needs Linux."""

    slug = "simulate-platform"


class UnsupportedTensorFlowError(SimulateError):
    """TensorFlow is missing, too old, or built without the GPU kernels' registrations."""

    slug = "simulate-tensorflow"


class NoCompilerError(SimulateError):
    """No g++ to build the device with."""

    slug = "simulate-compiler"


class BuildFailedError(SimulateError):
    """g++ refused the device's source, or the cache folder cannot be written."""

    slug = "simulate-build"


class TooLateError(SimulateError):
    """TensorFlow has made its devices already, or other devices are simulated."""

    slug = "simulate-too-late"


class RealGpuError(SimulateError):
    """A real GPU is visible."""

    slug = "simulate-real-gpu"
