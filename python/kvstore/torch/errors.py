"""What the hooks refuse, with the reason."""

from kvstore.errors import Error

__all__ = ["Unreadable", "Unsupported"]


class Unsupported(Error):
    """This model, cache or way of generating cannot be stored or restored exactly; says why."""


class Unreadable(Error):
    """Bytes that are no object of this format, or not all of one; says what is wrong."""
