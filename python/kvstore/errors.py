"""What can go wrong: one tree of exceptions.

Misuse raises. Trouble does not: a failed read is a miss with a reason, a put that finds no room is
a status.
"""

__all__ = [
    "ClosedError",
    "DivergenceError",
    "Error",
    "ForkedError",
    "IncompatibleError",
    "InvalidArgument",
    "LimitError",
    "LockedError",
    "StoreIOError",
]


class Error(Exception):
    """Base of everything that kvstore raises by itself."""


class InvalidArgument(Error, ValueError):
    """An argument is outside what the call takes; names field, value and limit."""


class LockedError(Error):
    """Another process owns the store; `pid` is its process id, or None where it left no name."""

    def __init__(self, message: str, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid


class IncompatibleError(Error):
    """The directory holds a store that this version must not touch."""


class StoreIOError(Error, OSError):
    """The file system refused: permission, space, a device that fails."""


class LimitError(Error):
    """A limit of the format is reached (4,096 namespaces, for example)."""


class ClosedError(Error):
    """The store or lease is closed, or the engine has failed and answers misses only."""


class ForkedError(ClosedError):
    """The handle belongs to the parent of this process, and cannot work here."""


class DivergenceError(Error):
    """A second put with other bytes, in a namespace opened with deterministic=True."""
