"""What commands print: one JSON object, or text for people; progress goes to standard error."""

from __future__ import annotations

import csv
import json
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Progress", "WrongUse", "add_out", "json_line", "print_json", "table", "write_rows"]

Row = Mapping[str, Any]


class WrongUse(Exception):
    """What was asked cannot be done; the message says what can. Exit status 2."""


def print_json(value: object) -> None:
    """The one object that a command with --json puts on standard output."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def json_line(value: object) -> None:
    """One line of JSON, at once: how one process of a command talks to the other."""
    print(json.dumps(value, separators=(",", ":"), allow_nan=False), flush=True)


def table(rows: Sequence[Row], columns: Mapping[str, str]) -> str:
    """Rows as aligned text; `columns` maps a row's field to its heading."""
    cells = [list(columns.values())]
    cells += [[_cell(row.get(field)) for field in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numeric = [
        all(isinstance(row.get(field), int | float | None) for row in rows) for field in columns
    ]
    lines = []
    for line in cells:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def add_out(parser: ArgumentParser) -> None:
    """--out FILE, for commands whose result is rows."""
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the rows too, as .csv or .parquet"
    )


def write_rows(path: Path | None, rows: Sequence[Row]) -> None:
    """Write rows where --out says, if it does. All rows have the fields of the first."""
    if path is None:
        return
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else [])
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".parquet":
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise WrongUse(
                f"--out {path}: Parquet needs pyarrow: pip install 'kvstore-engine[parquet]', "
                "or write .csv"
            ) from None
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([dict(row) for row in rows]), path)
    else:
        raise WrongUse(f"--out {path}: the name must end in .csv or .parquet")


class Progress:
    """A line on standard error that is written over; on no terminal, nothing at all."""

    def __init__(self) -> None:
        self._shown = 0
        self._live = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._live:
            print(f"\r{text:<{self._shown}}", end="", file=sys.stderr, flush=True)
            self._shown = len(text)

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            print(f"\r{'':<{self._shown}}\r", end="", file=sys.stderr, flush=True)
            self._shown = 0
