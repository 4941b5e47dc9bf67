"""Opening a store to look after it: as it is, whoever uses it."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

import kvstore
from kvstore import _core

__all__ = ["add_directory", "open_existing"]


def add_directory(parser: ArgumentParser) -> None:
    """The positional D of commands that look after a store."""
    parser.add_argument("directory", type=Path, metavar="D", help="directory of the store")


def open_existing(directory: Path, *, read_only: bool) -> kvstore.Store:
    """Open a store with the limits it has and room for all that it holds; never makes one."""
    limits = _core.existing_limits(directory)
    return kvstore.open(
        directory,
        host_bytes=0,
        disk_bytes=limits["disk_bytes"],
        objects=limits["objects"],
        read_only=read_only,
    )
