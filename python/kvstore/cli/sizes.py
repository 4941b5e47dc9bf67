"""Sizes as people write them: 4096, "4KiB", "8 GiB"."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

__all__ = ["size", "text"]

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS[f"{_letter}ib"] = 1024**_power
    _UNITS[f"{_letter}b"] = 1000**_power


def size(word: str) -> int:
    """Bytes, from a number with or without a unit; the type of an argument."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", word.lower())
    unit = _UNITS.get(found[2]) if found else None
    if found is None or unit is None:
        raise ArgumentTypeError(f"size {word!r}: must be a number of bytes, or like 4KiB or 8 GiB")
    return int(float(found[1]) * unit)


def text(count: float) -> str:
    """Bytes in the unit that leaves few digits: 6.7 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
