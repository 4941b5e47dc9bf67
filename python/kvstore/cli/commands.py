"""The commands there are: one line each."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["COMMANDS", "Command"]


class Command(NamedTuple):
    """Where a command lives, and what it is for in half a line."""

    module: str
    help: str


COMMANDS = {
    "demo": Command("kvstore.cli.demo", "a real model's prefix survives kill -9"),
    "replay": Command("kvstore.cli.replay", "a trace through a real store, every byte compared"),
    "sim": Command("kvstore.cli.sim", "traces through eviction policies, without I/O"),
    "footprint": Command("kvstore.footprint.cli", "what architectures cost to keep and to read"),
    "layouts": Command("kvstore.layouts.cli", "the architectures that are known"),
    "bill": Command("kvstore.footprint.bill", "what a trace costs with and without the cache"),
    "codec": Command("kvstore.cli.codec", "what number formats cost and lose"),
    "bench": Command("kvstore.cli.bench", "paired ratios to what stands next to each figure"),
    "inspect": Command("kvstore.cli.inspect", "what a store is made of"),
    "check": Command("kvstore.cli.check", "read and verify every object of a store"),
    "doctor": Command("kvstore.cli.doctor", "what this machine gives a store in a directory"),
    "clear": Command("kvstore.cli.clear", "make a tenant's, a namespace's or all objects vanish"),
}
