"""What the hooks refuse, with the reason."""

from kvstore.errors import Error

__all__ = ["Unsupported"]


class Unsupported(Error):
    """This model, cache or way of generating cannot be stored or restored exactly; says why."""
