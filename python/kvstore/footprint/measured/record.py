"""One measurement, as a row of a table and of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from kvstore.footprint.measured.sizes import Sizes
from kvstore.footprint.table import Cell, Table
from kvstore.footprint.tables import V32

__all__ = ["Record", "as_rows", "from_rows", "measured_table"]


@dataclass(frozen=True, slots=True)
class Record:
    """What an architecture's cache takes in a store under one policy, computed and counted."""

    name: str
    form: str
    #: Which resume points and windows are kept.
    policy: str
    #: Whether that is the layout's default.
    default: bool
    #: Tokens stored, in whole blocks.
    tokens: int
    #: Logical bytes per token of entries alone, by the layout.
    per_token: Fraction
    computed: Sizes
    #: What the files held; None where nothing ran, and `note` says why.
    counted: Sizes | None = None
    #: The index, in memory.
    index: int = 0
    #: How the second process went on: a mode of a resume plan, None where it had no resume point.
    mode: str | None = None
    #: Whether its next logits were those of the first process, bit for bit; None after a replay,
    #: which makes windows and states anew in chunks of another length, from a form that packs the
    #: live rows to fewer bits, and where it did not go on.
    same_logits: bool | None = None
    #: The model that ran.
    model: str = ""
    note: str = ""

    @property
    def basis(self) -> str:
        """ "logical": entries alone; "persistent": with what is kept to go on."""
        areas = self.computed.areas
        return "persistent" if areas["window"] or areas["checkpoint"] else "logical"


def as_rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Rows of JSON: per token what is computed and, where a model ran, what was counted, as exact
    fractions; then all bytes."""
    rows = []
    for one in records:
        row: dict[str, Any] = {
            "name": one.name,
            "basis": one.basis,
            "bytes_per_token": str(Fraction(one.computed.logical, one.tokens)),
        }
        if one.counted:
            row["measured_logical"] = str(Fraction(one.counted.logical, one.tokens))
            row["measured_physical"] = str(Fraction(one.counted.physical, one.tokens))
        rest = asdict(one) | {"per_token": str(one.per_token)}
        rows.append(row | {key: value for key, value in rest.items() if key not in row})
    return rows


def from_rows(rows: Iterable[dict[str, Any]]) -> list[Record]:
    """The records that such rows were made of."""
    fields = Record.__dataclass_fields__
    records = []
    for row in rows:
        given = {key: value for key, value in row.items() if key in fields}
        given["per_token"] = Fraction(given["per_token"])
        given["computed"] = Sizes(**given["computed"])
        given["counted"] = Sizes(**given["counted"]) if given["counted"] else None
        records.append(Record(**given))
    return records


def measured_table(records: Sequence[Record]) -> Table:
    """Computed beside counted, per token."""
    table = Table(
        "measured",
        "Computed, and counted on disk after a real model ran",
        [
            "name",
            "form",
            "policy",
            "tokens",
            "computed_logical",
            "measured_logical",
            "computed_physical",
            "measured_physical",
            "percent_over",
            "in_slots",
            "rounding",
            "lists_of_parts",
            "descriptors",
            "index_in_memory",
            "percent_of_v32",
            "went_on",
            "note",
            "model",
        ],
        notes=[
            "Bytes per token of one prompt. Logical: the objects' own bytes. Physical: their slots "
            "and descriptors; rounding, lists of parts and descriptors are all that it is over the "
            "logical bytes.",
            "Counted in the store's files after the first process was killed. Went on: how the "
            "second one did. same: its next logits were those of the first, bit for bit. They need "
            "not be after a replay, which computes windows and states anew in chunks of another "
            "length, nor where a form packs the model's bf16 rows to fewer bits.",
            "Index: what a store with room for just these objects keeps in memory, its fixed part "
            "of some 100 KB included. Percent of V3.2: of 48,068 B, entries only.",
            "Policies: entries only; a resume point at the prompt's end, or also every 1,024 "
            "tokens, with its windows; the windows of all blocks. *: the layout's default.",
        ],
        only_in_files=frozenset({"form", "model", "rounding", "lists_of_parts"}),
    )
    for one in records:
        table.rows.append(_cells(one))
    return table


def _cells(one: Record) -> dict[str, Cell]:
    def per(size: int) -> Fraction:
        return Fraction(size, one.tokens)

    found = one.counted
    cells: dict[str, Cell] = {
        "name": one.name,
        "form": one.form,
        "policy": one.policy + ("*" if one.default else ""),
        "tokens": one.tokens,
        "computed_logical": per(one.computed.logical),
        "computed_physical": per(one.computed.physical),
        "note": one.note,
        "model": one.model,
    }
    if found is None:
        return cells
    counted: dict[str, Cell] = {
        "measured_logical": per(found.logical),
        "measured_physical": per(found.physical),
        "percent_over": Fraction(found.physical - found.logical, found.logical) * 100,
        "in_slots": per(found.slots),
        "rounding": per(found.rounding),
        "lists_of_parts": per(found.manifests),
        "descriptors": per(found.descriptors),
        "index_in_memory": per(one.index),
        "percent_of_v32": per(found.logical) / V32 * 100 if one.basis == "logical" else None,
        "went_on": (one.mode or "no resume point").replace("_", " ")
        + (", same" if one.same_logits else ""),
    }
    return cells | counted
