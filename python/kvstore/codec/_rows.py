"""A row of `kvstore codec report`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One scheme on one data set."""

    data: str
    preset: str
    bits_per_element: float
    # 10 log10 of signal over error power.
    sqnr_db: float
    # Mean of |error| / |x| over elements above 1% of the root mean square.
    relative_error: float
