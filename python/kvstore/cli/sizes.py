"""Sizes as people write them: 4096, "4KiB", "8 GiB"."""

from __future__ import annotations

from argparse import ArgumentTypeError

import kvstore

__all__ = ["size", "text"]


def size(word: str) -> int:
    """Bytes, from a number with or without a unit; the type of an argument."""
    try:
        return kvstore.parse_size(word)
    except kvstore.InvalidArgument as error:
        raise ArgumentTypeError(str(error)) from None


def text(count: float) -> str:
    """Bytes in the unit that leaves few digits: 6.7 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
