"""The price table: the founding paper's record, and what a user adds."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any

_FIELDS = ("hit", "miss", "output", "hit_off_peak", "miss_off_peak", "output_off_peak")


@dataclass(frozen=True)
class Price:
    """Prices in USD per million tokens; None where the record gives none."""

    name: str
    since: str
    model: str
    source: str
    hit: Fraction | None = None
    miss: Fraction | None = None
    output: Fraction | None = None
    hit_off_peak: Fraction | None = None
    miss_off_peak: Fraction | None = None
    output_off_peak: Fraction | None = None

    def discount(self) -> Fraction | None:
        """How many times cheaper a hit is than a miss."""
        return self.miss / self.hit if self.hit and self.miss else None

    def of(self, what: str, off_peak: bool) -> Fraction | None:
        """The price of a hit, a miss or an output token; at peak where off-peak is not given."""
        peak: Fraction | None = getattr(self, what)
        if not off_peak:
            return peak
        value: Fraction | None = getattr(self, f"{what}_off_peak")
        return peak if value is None else value


def prices(extra: Path | None = None) -> dict[str, Price]:
    """All prices by name; those of a user's file replace built-in ones of the same name."""
    text = files("kvstore.footprint").joinpath("prices.toml").read_text(encoding="utf-8")
    table = _parse(text, "prices.toml")
    if extra is not None:
        table |= _parse(extra.read_text(encoding="utf-8"), str(extra))
    return table


def _parse(text: str, origin: str) -> dict[str, Price]:
    try:
        entries = tomllib.loads(text).get("price", [])
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{origin}: {error}") from error
    return {price.name: price for price in (_price(entry, origin) for entry in entries)}


def _price(entry: dict[str, Any], origin: str) -> Price:
    known = {"name", "from", "model", "source", *_FIELDS}
    unknown = set(entry) - known
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f'{origin}: a [[price]] has no name. Mend: add name = "..."')
    if unknown:
        fields = ", ".join(sorted(unknown))
        raise ValueError(
            f"{origin}: price {name!r}: unknown {fields}. Mend: use {', '.join(known)}"
        )
    numbers = {}
    for field in _FIELDS:
        value = entry.get(field)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise ValueError(
                f"{origin}: price {name!r}: {field} = {value!r} must be 0 or more, in USD per "
                "million tokens"
            )
        numbers[field] = Fraction(str(value))
    return Price(
        name=name,
        since=str(entry.get("from", "")),
        model=str(entry.get("model", "")),
        source=str(entry.get("source", "")),
        **numbers,
    )
