"""What fewer bits lose: in the stored cache of a real model, and in a sparse indexer's keys.

Two measurements, both against bf16. `cache`: the built-in model foretells held-out text over a
prefix that was stored in each of the codec's formats. `index`: how many of the entries that the
lightning indexer picks are still picked over quantised index keys, or by scores in bf16.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from kvstore.bench import _precision_cache as cache
from kvstore.bench import _precision_index as index
from kvstore.bench import _precision_report as report
from kvstore.cli.output import Progress, WrongUse, print_json
from kvstore.footprint.table import Table
from kvstore.models import demo

__all__ = ["add_arguments", "measure_index", "run"]

#: Layer of the demo model whose records serve as index keys.
LAYER = 2
#: Bytes of text before the demo model's queries: all positions that it has.
DEMO_TOKENS = 8192


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--only", choices=["cache", "index"], help="one of the two")
    parser.add_argument("--windows", type=int, default=16, help="pieces of text (16)")
    parser.add_argument("--prefix", type=int, default=4096, help="cached tokens of each (4096)")
    parser.add_argument("--following", type=int, default=1024, help="foretold tokens (1024)")
    parser.add_argument(
        "--entries",
        type=int,
        action="append",
        help="index keys of a made set; may be repeated (16384 and 65536)",
    )
    parser.add_argument("--demo-tokens", type=int, default=DEMO_TOKENS, help="those of `demo`")
    parser.add_argument("--queries", type=int, default=32, help="queries of each set (32)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the tables as .csv or .parquet: FILE, FILE-index"
    )
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="draw both as SVG files")
    parser.add_argument(
        "--document", type=Path, metavar="FILE", help="write the tables into a document's part"
    )
    parser.add_argument("--json", action="store_true", help="one object on standard output")


def run(args: argparse.Namespace) -> int:
    """0: done. WrongUse for what cannot be measured."""
    progress = Progress()
    try:
        return _run(args, progress.show)
    except (OSError, ValueError) as error:
        raise WrongUse(str(error)) from error
    finally:
        progress.clear()


def _run(args: argparse.Namespace, tell: Callable[[str], None]) -> int:
    if args.only and (args.pictures or args.document):
        raise ValueError("--pictures and --document show both: leave out --only")
    if args.out and args.out.suffix not in (".csv", ".parquet"):
        raise ValueError(f"--out {args.out}: the name must end in .csv or .parquet")
    around = report.around(args.document) if args.document else ("", "")
    cached: list[cache.CacheRow] = []
    picked: list[index.IndexRow] = []
    scores: list[index.IndexRow] = []
    if args.only != "index":
        cached = cache.measure(args.windows, args.prefix, args.following, tell)
    if args.only != "cache":
        entries = args.entries or [16_384, 65_536]
        picked, scores = measure_index(entries, args.demo_tokens, args.queries, args.seed, tell)
    made = report.cache_table(cached), report.index_table(picked), report.scores_table(scores)
    tables = [table for table in made if table.rows]
    if args.out:
        _write(args.out, tables)
    if args.pictures:
        for path in report.draw(args.pictures, cached, picked):
            print(path, file=sys.stderr)
    if args.document:
        part = report.document(cached, picked, scores, vars(args))
        args.document.write_text(part.join(around), encoding="utf-8")
    if args.json:
        rows: dict[str, list[Any]] = {"cache": cached, "index": picked, "scores": scores}
        print_json({name: [asdict(row) for row in found] for name, found in rows.items() if found})
    else:
        tell("")
        print("\n".join(table.text() for table in tables))
    return 0


def measure_index(
    entries: list[int], demo_tokens: int, queries: int, seed: int, tell: Callable[[str], None]
) -> tuple[list[index.IndexRow], list[index.IndexRow]]:
    """The rows of all sets: by format of the keys, and with the scores in bf16. ValueError for
    fewer entries than are picked, or no query."""
    least = index.PICKS[-1]
    if min([*entries, demo_tokens]) <= least or queries < 1:
        raise ValueError(
            f"--entries {entries}, --demo-tokens {demo_tokens}, --queries {queries}: more than "
            f"{least} entries and at least one query wanted"
        )
    rows: list[index.IndexRow] = []
    scores: list[index.IndexRow] = []
    for scored in _sets(entries, demo_tokens, queries, seed):
        tell(f"{len(scored.keys):,} index keys, {scored.name}")
        rows += index.measure(scored)
        scores += index.score_rows(scored)
    return rows, scores


def _sets(entries: list[int], demo_tokens: int, queries: int, seed: int) -> Iterator[index.Scored]:
    for count in entries:
        for make in index.SETS.values():
            yield make(np.random.default_rng(seed), count, queries)
    yield index.of_the_demo(demo.prompts(demo_tokens, seed=seed)[0], LAYER, queries)


def _write(path: Path, tables: list[Table]) -> None:
    for number, table in enumerate(tables):
        name = path.name if number == 0 else f"{path.stem}-{table.name}{path.suffix}"
        target = path.with_name(name)
        if path.suffix == ".csv":
            target.write_text(table.csv(), encoding="utf-8")
        else:
            table.write_parquet(target)
