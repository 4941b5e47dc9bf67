"""A table: rows of exact values, and how they are written."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

#: A cell: exact numbers stay exact until they are printed.
Cell = str | int | float | Fraction | None


@dataclass
class Table:
    """Rows under named columns, and what the numbers are measured on."""

    name: str
    title: str
    columns: Sequence[str]
    rows: list[dict[str, Cell]] = field(default_factory=list)
    #: Basis, assumptions and sources, one line each.
    notes: list[str] = field(default_factory=list)
    #: Columns that a terminal does not show.
    only_in_files: frozenset[str] = frozenset()

    def add(self, **cells: Cell) -> None:
        """Adds a row; columns that are not given stay empty."""
        unknown = set(cells) - set(self.columns)
        if unknown:
            raise KeyError(f"table {self.name}: no column {', '.join(sorted(unknown))}")
        self.rows.append(cells)

    def column(self, name: str) -> list[Cell]:
        """One column, top to bottom."""
        return [row.get(name) for row in self.rows]

    def text(self) -> str:
        """The table for a terminal: long headings are stacked, columns that only files have are
        left out."""
        columns = [column for column in self.columns if column not in self.only_in_files]
        cells = [[human(row.get(column)) for column in columns] for row in self.rows]
        heads = _stack([column.split("_") for column in columns])
        widths = [max(map(len, column)) for column in zip(*heads, *cells, strict=True)]
        numeric = [
            all(isinstance(row.get(column), int | float | Fraction | None) for row in self.rows)
            for column in columns
        ]
        lines = [self.title, ""]
        for line in [*heads, ["-" * width for width in widths], *cells]:
            parts = [
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(line, widths, numeric, strict=True)
            ]
            lines.append("  ".join(parts).rstrip())
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines) + "\n"

    def markdown(self) -> str:
        """The table for a document."""
        heads = [column.replace("_", " ") for column in self.columns]
        lines = ["| " + " | ".join(heads) + " |", "| " + " | ".join("---" for _ in heads) + " |"]
        for row in self.rows:
            lines.append("| " + " | ".join(human(row.get(c)) for c in self.columns) + " |")
        notes = "".join(f"\n{note}\n" for note in self.notes)
        return "\n".join(lines) + "\n" + notes

    def json_rows(self) -> list[dict[str, Any]]:
        """Rows for JSON: fractions as strings, so that nothing is rounded."""
        return [{c: plain(row.get(c)) for c in self.columns} for row in self.rows]

    def csv(self) -> str:
        """Comma-separated, fractions as strings."""
        out = io.StringIO()
        writer = csv.DictWriter(out, list(self.columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.json_rows())
        return out.getvalue()

    def write_parquet(self, path: Path) -> None:
        """An Arrow table: columns with fractions are strings, others keep their type."""
        try:
            import pyarrow  # type: ignore[import-not-found, import-untyped, unused-ignore]
            import pyarrow.parquet  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError as error:
            raise ValueError(f"{path}: Parquet needs pyarrow: pip install pyarrow") from error
        rows = self.json_rows()
        columns = {c: _one_type([row[c] for row in rows]) for c in self.columns}
        pyarrow.parquet.write_table(pyarrow.table(columns), path)


def _one_type(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int} or kinds <= {float} or kinds <= {str}:
        return values
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else str(value) for value in values]


def _stack(heads: list[list[str]], width: int = 12) -> list[list[str]]:
    """Headings as lines of at most about ``width`` letters, the last lines level."""
    stacks = []
    for words in heads:
        lines = [words[0]]
        for word in words[1:]:
            if len(lines[-1]) + len(word) < width:
                lines[-1] += f" {word}"
            else:
                lines.append(word)
        stacks.append(lines)
    height = max(map(len, stacks))
    return [
        [lines[i - height + len(lines)] if i >= height - len(lines) else "" for lines in stacks]
        for i in range(height)
    ]


def plain(value: Cell) -> Any:
    """A value for JSON: a fraction that is no whole number becomes a string like "14057/4"."""
    return str(value) if isinstance(value, Fraction) else value


def human(value: Cell) -> str:
    """A value for people: whole numbers with separators, others with the digits that matter."""
    match value:
        case None:
            return ""
        case str():
            return value
        case int():
            return f"{value:,}"
        case Fraction() if value.denominator == 1:
            return f"{value.numerator:,}"
    number = float(value)
    size = abs(number)
    digits = 0 if size >= 100_000 else 2 if size >= 10 else 3 if size >= 0.1 else 4
    text = f"{number:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
