"""`kvstore bench replay`: what replay gets wrong, what it costs, and what it saves.

A toy V4.1-Flash is trained for some CPU minutes. Texts that it has not seen are stored and cut;
each cut is restored as it was and replayed, and both are continued with the text. Costs are planned
at true geometry and measured in rounds of all modes, median and quartiles.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from kvstore.bench.replay.page import document, put_block

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "--quick", action="store_true", help="short prompts, random weights: does it run?"
    )
    parser.add_argument("--steps", type=int, default=400, help="steps of training (default: 400)")
    parser.add_argument(
        "--weights", type=Path, metavar="FILE", help="keep what was trained, or take it from there"
    )
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="FILE", help="measure nothing: an earlier --out"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--page", type=Path, metavar="FILE", help="put the tables into a page")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw to a PNG or SVG file")
    parser.add_argument("--json", action="store_true", help="one object on standard output")


def run(args: argparse.Namespace) -> int:
    """0: done; 1: an exact mode did not give the live cache's bits; 2: wrong use."""
    try:
        report = json.loads(args.source.read_text()) if args.source else _measured(args)
        text = document(report)
        if args.out is not None:
            args.out.write_text(_lines(report), encoding="utf-8")
        if args.page is not None:
            put_block(args.page, text)
        if args.picture is not None:
            from kvstore.bench.replay.picture import draw

            draw(report, args.picture)
    except (OSError, ValueError) as error:
        print(f"kvstore bench replay: {error}", file=sys.stderr)
        return 2
    print(json.dumps(report) if args.json else text)
    return 0 if all(row["equal"] == row["cuts"] for row in report["exact"]) else 1


def _measured(args: argparse.Namespace) -> dict[str, Any]:
    if args.steps < 1:
        raise ValueError(f"--steps: {args.steps} given, at least 1 wanted")
    try:
        from kvstore.bench.replay.measure import FULL, QUICK, measure
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ValueError("torch is not installed; pip install torch") from None
    return measure(QUICK if args.quick else FULL, steps=args.steps, weights=args.weights)


def _lines(report: dict[str, Any]) -> str:
    """JSON with one row a line, so that a change shows which figures changed."""
    parts = []
    for name, value in report.items():
        if isinstance(value, list):
            rows = ",\n".join(f"  {json.dumps(row)}" for row in value)
            parts.append(f'"{name}": [\n{rows}\n]')
        else:
            parts.append(f'"{name}": {json.dumps(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"
