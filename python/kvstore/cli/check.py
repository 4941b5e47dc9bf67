"""Read every object of a store's disk tier and compare it with its checksum.

The store must not be open in another process. Without --repair nothing is changed. With it, objects
that fail are removed, as a read of them would do; what hangs under them stays and becomes reachable
when they are stored again. Status 1 if anything is damaged.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kvstore import _core
from kvstore.cli.opening import add_directory, open_existing
from kvstore.cli.output import Progress, add_out, print_json, table, write_rows
from kvstore.cli.sizes import text

__all__ = ["add_arguments", "run"]

COLUMNS = {
    "kind": "kind",
    "namespace": "namespace",
    "segment": "segment",
    "slot": "slot",
    "bytes": "bytes",
    "key": "key",
    "why": "why",
}


def add_arguments(parser: ArgumentParser) -> None:
    add_directory(parser)
    parser.add_argument("--repair", action="store_true", help="remove what fails")
    add_out(parser)


def run(args: Namespace) -> int:
    progress = Progress()
    with open_existing(args.directory, read_only=not args.repair) as store:
        found = _core.check(
            store,
            repair=args.repair,
            progress=lambda done, of: progress.show(f"checked {done:,} of {of:,} objects"),
        )
        recovered = store.stats()["recovered"]
    progress.clear()
    damaged = found["damaged"]
    if args.json:
        print_json(found | {"recovered": recovered})
    else:
        print(f"{found['objects']:,} objects, {text(found['bytes'])}: {len(damaged):,} damaged")
        if damaged:
            print(table(damaged, COLUMNS))
            print(
                f"{found['removed']:,} removed"
                if args.repair
                else f"kvstore check --repair {args.directory} removes them"
            )
    write_rows(args.out, damaged)
    return 1 if damaged else 0
