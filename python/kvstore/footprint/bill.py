"""``kvstore bill``: what a trace costs with and without disk context caching.

The cache of the bill keeps every prompt's prefix for ever, in whole units (64 tokens as DeepSeek
bills, or 128): what a prompt shares with an earlier one is a hit, the last token never is.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from kvstore._core import usage_tokens
from kvstore.footprint.prices import Price, prices
from kvstore.footprint.table import Table
from kvstore.footprint.traces import Trace, open_trace


@dataclass
class Tokens:
    """Tokens of a trace, as they are billed."""

    requests: int = 0
    requests_with_a_hit: int = 0
    prompt: int = 0
    hit: int = 0
    miss: int = 0
    output: int = 0


def count(trace: Trace, unit: int = 64) -> Tokens:
    """Hit and miss tokens of a trace, in whole units."""
    if unit < 1:
        raise ValueError(f"unit = {unit} must be 1 token or more")
    seen: set[int] = set()
    total = Tokens()
    for request in trace.requests:
        blocks = request.blocks
        known = next((i for i, block in enumerate(blocks) if block not in seen), len(blocks))
        matched = min(known * trace.block_tokens, request.prompt_tokens)
        prompt, hit, miss, _ = usage_tokens(request.prompt_tokens, matched, matched, unit=unit)
        seen.update(blocks)
        total.requests += 1
        total.requests_with_a_hit += hit > 0
        total.prompt += prompt
        total.hit += hit
        total.miss += miss
        total.output += request.output_tokens
    return total


def amount(tokens: Tokens, price: Price, *, cached: bool, off_peak: bool) -> dict[str, Fraction]:
    """USD by kind of token. Output that has no price is left out."""
    hit_price, miss_price = price.of("hit", off_peak), price.of("miss", off_peak)
    if miss_price is None or (cached and hit_price is None):
        absent = "miss" if miss_price is None else "hit"
        raise ValueError(
            f"price {price.name!r} has no {absent} price ({price.source}). Mend: add one in a file "
            "for --price-file"
        )
    million = Fraction(1, 1_000_000)
    parts = {"miss": (tokens.miss if cached else tokens.prompt) * miss_price * million}
    if cached and hit_price is not None:
        parts["hit"] = tokens.hit * hit_price * million
    output_price = price.of("output", off_peak)
    if output_price is not None:
        parts["output"] = tokens.output * output_price * million
    return parts


def bill_table(trace: Trace, price: Price, tokens: Tokens, unit: int) -> Table:
    """The bill with and without the cache, peak and off-peak."""
    table = Table(
        "bill",
        f"{trace.name} at {price.name} ({price.model}, from {price.since})",
        ["bill", "hours", "hit", "miss", "output", "total", "saved_percent"],
        notes=[
            f"USD. {tokens.requests:,} requests, {tokens.requests_with_a_hit:,} with a hit; "
            f"{tokens.prompt:,} prompt tokens = {tokens.hit:,} hit + {tokens.miss:,} miss, in "
            f"units of {unit}; {tokens.output:,} output tokens.",
            f"Prices per million: {price.source}. What is not given off-peak is billed at peak "
            "price.",
        ],
    )
    for off_peak in (False, True):
        without = amount(tokens, price, cached=False, off_peak=off_peak)
        whole = sum(without.values(), Fraction(0))
        for cached in (False, True):
            parts = amount(tokens, price, cached=True, off_peak=off_peak) if cached else without
            total = sum(parts.values(), Fraction(0))
            table.add(
                bill="with the cache" if cached else "without",
                hours="off-peak" if off_peak else "peak",
                hit=parts.get("hit"),
                miss=parts["miss"],
                output=parts.get("output"),
                total=total,
                saved_percent=(1 - total / whole) * 100 if cached and whole else None,
            )
    return table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "trace",
        metavar="TRACE",
        help="a .jsonl or .jsonl.gz file with input_length, output_length and hash_ids (or runs), "
        "or prefix:TOKENSxCALLS, as in prefix:32768x500",
    )
    parser.add_argument("--prices", required=True, metavar="NAME", help="a name of the price table")
    parser.add_argument("--price-file", type=Path, metavar="FILE", help="a file with own prices")
    parser.add_argument("--unit", type=int, default=64, choices=(64, 128), help="tokens of a unit")
    parser.add_argument("--block", type=int, metavar="TOKENS", help="tokens of one block id")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the table: .csv or .parquet"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def run(args: argparse.Namespace) -> int:
    """Runs the command: 0 fine, 2 wrong use."""
    try:
        known = prices(args.price_file)
        if args.prices not in known:
            names = ", ".join(known)
            raise ValueError(f"--prices {args.prices!r}: the table has {names}")
        if args.block is not None and args.block < 1:
            raise ValueError(f"--block = {args.block} must be 1 token or more")
        trace = open_trace(args.trace, args.block)
        tokens = count(trace, args.unit)
        table = bill_table(trace, known[args.prices], tokens, args.unit)
        if args.out:
            _write(table, args.out)
    except (OSError, ValueError) as error:
        print(f"kvstore bill: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(_as_json(table, tokens, args), indent=1))
    elif not args.out:
        print(table.text(), end="")
    return 0


def _as_json(table: Table, tokens: Tokens, args: argparse.Namespace) -> dict[str, Any]:
    return {
        "trace": args.trace,
        "prices": args.prices,
        "unit": args.unit,
        "tokens": asdict(tokens),
        "rows": table.json_rows(),
    }


def _write(table: Table, path: Path) -> None:
    if path.suffix == ".csv":
        path.write_text(table.csv(), encoding="utf-8")
    elif path.suffix == ".parquet":
        table.write_parquet(path)
    else:
        raise ValueError(f"--out {path}: must end in .csv or .parquet")
