"""The commands there are: one line each."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COMMANDS", "Command"]


class Command(NamedTuple):
    """Where a command lives, and what it is for in half a line."""

    module: str
    help: str


COMMANDS = {
    "sim": Command("kvstore.cli.sim", "replay traces through eviction policies, without I/O"),
}
