"""``kvstore footprint --measured`` as a command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvstore.footprint.chosen import Chosen
from kvstore.footprint.measured.disk import Damaged
from kvstore.footprint.measured.record import Record, as_rows, measured_table
from kvstore.footprint.measured.running import TOKENS, Wrong, measure
from kvstore.footprint.table import Table

__all__ = ["TOKENS", "Found", "add_arguments", "run"]


@dataclass(frozen=True, slots=True)
class Found:
    """What the command shows, and its status."""

    table: Table
    document: dict[str, Any]
    status: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the measurement."""
    parser.add_argument(
        "--measured",
        action="store_true",
        help="run a model of each at true cache geometry, store its cache, count it on disk, and "
        "go on in a second process: only that table",
    )
    parser.add_argument(
        "--dir", type=Path, metavar="DIR", help="keep the stores of --measured in DIR"
    )


def run(args: argparse.Namespace, chosen: Sequence[Chosen]) -> Found:
    """Measures what is chosen. Status 1 where a store held or gave something else than the
    arithmetic says: the rows before it are there all the same."""
    if args.measure:
        raise ValueError("--measured and --measure: one of them at a time")
    records: list[Record] = []
    status = 0
    try:
        for record in measure(chosen, tokens=args.tokens, folder=args.dir):
            records.append(record)
    except (Wrong, Damaged) as error:
        print(f"kvstore footprint: {error}", file=sys.stderr)
        status = 1
    return Found(measured_table(records), {"rows": as_rows(records)}, status)
