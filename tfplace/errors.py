"""Errors that a user can meet: what happened, where, and the cure."""

from __future__ import annotations


class TfplaceError(Exception):
    """Base of every error that tfplace raises on purpose.

    Args:
        message: One sentence: what is wrong and where.
        hint: What to do about it; printed after the message.

    Attributes:
        slug: Stable short name of the kind of error; `docs/errors.md` explains each.
    """

    slug = "error"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class UnreadableTraceError(TfplaceError):
    """The input cannot be opened or is damaged beyond use."""

    slug = "unreadable-trace"


class UnsupportedFormatError(TfplaceError):
    """The input is a known or unknown kind of file that tfplace cannot report on."""

    slug = "unsupported-format"


class UsageError(TfplaceError):
    """The command or call asks for something that this trace or table does not have."""

    slug = "usage"


class OutputError(TfplaceError):
    """The result cannot be written where it was asked for."""

    slug = "output"
