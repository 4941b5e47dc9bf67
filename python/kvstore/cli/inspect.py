"""Show what a store is made of: limits, classes, segments, namespaces, what recovery found.

Changes nothing. The store must not be open in another process.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Any

from kvstore import _core
from kvstore.cli.opening import add_directory, open_existing
from kvstore.cli.output import print_json, table
from kvstore.cli.sizes import text

__all__ = ["add_arguments", "run"]


def add_arguments(parser: ArgumentParser) -> None:
    add_directory(parser)
    parser.add_argument("--segments", action="store_true", help="list every segment")


def run(args: Namespace) -> int:
    with open_existing(args.directory, read_only=True) as store:
        found = _core.inspect(store)
        stats = store.stats()
    if args.json:
        print_json(found | {"disk": stats["disk"], "recovered": stats["recovered"]})
    else:
        _show(found, stats, segments=args.segments)
    return 0


def _show(found: Mapping[str, Any], stats: Mapping[str, Any], *, segments: bool) -> None:
    disk, recovered = stats["disk"], stats["recovered"]
    created = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(found["created_at"]))
    print(f"store      {found['store']}, format {found['version']}, created {created} UTC")
    print(
        f"limit      {text(found['disk_bytes'])} (at most {text(found['max_disk_bytes'])} "
        f"without making it anew)"
    )
    print(
        f"objects    {disk['objects']:,}: {text(disk['logical'])} of payload in "
        f"{text(disk['slots'])} of slots"
    )
    print(
        f"segments   {disk['segments'] - disk['segments_free']:,} used of {disk['segments']:,}, "
        f"{text(found['segment_bytes'])} each"
    )
    print(f"sequence   {found['sequence']:,} puts and epochs so far")
    left = {name: count for name, count in recovered.items() if name in _LEFT_OUT and count}
    print(f"recovery   {recovered['objects']:,} objects, {recovered['seconds'] * 1000:.1f} ms")
    for name, count in left.items():
        print(f"           {count:,} {_LEFT_OUT[name]}")
    for name, count in recovered["unreadable"].items():
        if count:
            print(f"           {count:,} {name.replace('_', ' ')} could not be read")
    if disk["classes"]:
        print("\nclasses")
        rows = [
            {"stride": stride, "objects": count}
            for stride, count in sorted(disk["classes"].items())
        ]
        print(_indent(table(rows, {"stride": "slot bytes", "objects": "objects"})))
    if found["namespaces"]:
        print("\nnamespaces")
        rows = [
            {**row, "digest": row["digest"][:16], **(row["description"] or {})}
            for row in found["namespaces"]
        ]
        columns = {
            "digest": "digest",
            "model": "model",
            "dtype": "dtype",
            "block_tokens": "block",
            "objects": "objects",
        }
        print(_indent(table(rows, columns)))
    if segments:
        print("\nsegments")
        columns = {
            name: name for name in ("segment", "phase", "stride", "generation", "slots", "live")
        }
        print(_indent(table(found["segments"], columns)))


_LEFT_OUT = {
    "cleared": "cleared since",
    "expired": "expired",
    "duplicates": "older copies of a block that has a newer one",
    "orphan_parts": "parts without their first part",
    "damaged": "records that are no descriptor of their place",
    "no_room": "without room in the index",
}


def _indent(lines: str) -> str:
    return "\n".join(f"  {line}" for line in lines.splitlines())
