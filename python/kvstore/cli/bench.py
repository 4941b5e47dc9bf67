"""Measure against what stands next to each figure: paired ratios, median and quartiles."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kvstore.cli.commands import Command
from kvstore.cli.group import add_commands, run_command

__all__ = ["COMMANDS", "add_arguments", "run"]

COMMANDS = {
    "codec": Command("kvstore.bench.codec", "one core's conversions beside memcpy"),
    "precision": Command("kvstore.bench.precision", "what fewer bits in a cache lose"),
    "replay": Command("kvstore.bench.replay", "what replay gets wrong, costs and saves"),
}


def add_arguments(parser: ArgumentParser) -> None:
    add_commands(parser, COMMANDS)


def run(args: Namespace) -> int:
    return run_command("bench", COMMANDS, args)
