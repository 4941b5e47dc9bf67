"""Replay traces through eviction policies, without I/O.

Each policy starts from an empty store at each capacity. Policies: leaf-lru (what the store does),
lru, optimum (the exact bound: it knows the future). Traces are JSON Lines, plain, .gz or .zst, with
the ids of a request's blocks as "hash_ids" or "runs".
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from kvstore import _core
from kvstore.cli.output import Progress, add_out, print_json, table, write_rows

__all__ = ["add_arguments", "run"]

COLUMNS = {
    "trace": "trace",
    "policy": "policy",
    "capacity": "capacity",
    "capacity_blocks": "blocks",
    "hit_ratio": "hit ratio",
    "bytes_written_per_byte_hit": "written/hit",
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help="trace file")
    parser.add_argument(
        "--policy",
        default="leaf-lru,optimum",
        metavar="P,...",
        help="leaf-lru, lru, optimum (default: %(default)s)",
    )
    parser.add_argument(
        "--capacity",
        default="1%,2%,5%,10%,20%",
        metavar="C,...",
        help="blocks, or a share of the trace's unique blocks (default: 1%%,2%%,5%%,10%%,20%%)",
    )
    parser.add_argument("--head", type=int, metavar="N", help="only the first N requests")
    parser.add_argument(
        "--per-request", action="store_true", help="with --json: the hits of each request"
    )
    add_out(parser)


def run(args: Namespace) -> int:
    progress = Progress()
    rows = []
    for trace in args.traces:
        for policy in args.policy.split(","):
            progress.show(f"{trace.name}: {policy}")
            rows += _core.simulate(
                trace,
                policy.strip(),
                args.capacity.split(","),
                args.head,
                per_request=args.per_request and args.json,
            )
    progress.clear()
    if args.json:
        print_json({"rows": rows})
    else:
        print(table(rows, COLUMNS))
    write_rows(args.out, rows)
    return 0
