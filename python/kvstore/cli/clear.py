"""Make what is stored unreachable: of one tenant, of one namespace, or all of it.

Takes effect at once and for good: an epoch on disk, flushed before the command ends. With --erase
the bytes are overwritten as well, which takes longer. The store must not be open elsewhere.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kvstore import _core
from kvstore.cli.opening import add_directory, open_existing
from kvstore.cli.output import print_json

__all__ = ["add_arguments", "run"]


def add_arguments(parser: ArgumentParser) -> None:
    add_directory(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--tenant", metavar="SALT", help="what was stored under this cache_salt")
    what.add_argument(
        "--namespace", metavar="DIGEST", help="one namespace, as kvstore inspect names it"
    )
    what.add_argument("--all", action="store_true", help="every namespace")
    parser.add_argument("--erase", action="store_true", help="overwrite the bytes as well")


def run(args: Namespace) -> int:
    with open_existing(args.directory, read_only=False) as store:
        if args.tenant is not None:
            objects = store.clear(cache_salt=args.tenant, erase=args.erase)
        else:
            digest = "" if args.all else args.namespace
            objects = _core.clear_namespaces(store, digest, erase=args.erase)
    if args.json:
        print_json({"objects": objects})
    else:
        print(f"{objects:,} objects cleared")
    return 0
