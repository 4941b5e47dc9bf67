"""What each architecture's cache is made of, byte by byte, and from where a prompt can go on."""

from kvstore._core import Group, Layout

__all__ = ["Group", "Layout"]
