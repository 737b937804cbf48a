"""The version, alone, so that every layer can say it."""

__version__ = "0.1.0"
