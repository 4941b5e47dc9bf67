"""Replay a trace through a real store on a real disk.

For each request: look its blocks up, read those that are there and compare every byte with what
the block must hold, then store the rest and wait until it would survive kill -9. Each payload is
made from its block's id, so one in the wrong place is found out. wrong_bytes above 0 is a bug, and
ends with status 1.

With --host 0 (the default) everything is read from disk. --capacity limits the blocks that the disk
tier holds, as kvstore sim's does: the two agree hit for hit.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path

from kvstore.cli.output import Progress, WrongUse, print_json
from kvstore.cli.sizes import size, text

__all__ = ["add_arguments", "run"]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("trace", type=Path, metavar="TRACE", help="trace: .jsonl, .gz or .zst")
    parser.add_argument(
        "--store", type=Path, required=True, metavar="D", help="directory of the store: a new one"
    )
    parser.add_argument(
        "--capacity",
        default="100%",
        metavar="C",
        help="blocks on disk, or a share of the trace's unique blocks (default: 100%%)",
    )
    parser.add_argument("--policy", default="leaf-lru", choices=["leaf-lru", "lru"])
    parser.add_argument(
        "--host", type=size, default=0, metavar="SIZE", help="host tier (default: 0, none)"
    )
    parser.add_argument(
        "--payload", type=size, default=4096, metavar="SIZE", help="per block (default: 4KiB)"
    )
    parser.add_argument("--head", type=int, metavar="N", help="only the first N requests")
    parser.add_argument(
        "--per-request", action="store_true", help="with --json: the hits of each request"
    )


def run(args: Namespace) -> int:
    try:
        from kvstore.cli.replay.through import replay
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise WrongUse("needs numpy: pip install 'kvstore-engine[numpy]'") from None
    progress = Progress()
    found = replay(
        args.trace,
        args.store,
        capacity=args.capacity,
        policy=args.policy,
        host_bytes=args.host,
        payload_bytes=args.payload,
        head=args.head,
        progress=progress.show,
    )
    progress.clear()
    if args.json:
        fields = asdict(found)
        if not args.per_request:
            del fields["hits"]
        print_json(fields | {"hit_ratio": found.hit_ratio})
    else:
        print(
            f"{found.trace}: {found.policy}, {found.capacity_blocks:,} blocks\n"
            f"  requests    {found.requests:,}\n"
            f"  hits        {found.blocks_hit:,} of {found.blocks_requested:,} blocks"
            f" = {found.hit_ratio:.4f}\n"
            f"  by tier     {found.hits_host:,} host, {found.hits_disk:,} disk\n"
            f"  read        {text(found.bytes_read)}, {found.wrong_bytes:,} bytes wrong\n"
            f"  written     {text(found.bytes_written)}\n"
            f"  time        {found.seconds:.1f} s"
        )
    return 1 if found.wrong_bytes else 0
