"""Number formats of cache entries: what each one costs and loses."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from kvstore.cli.commands import Command
from kvstore.cli.group import add_commands, run_command

__all__ = ["COMMANDS", "add_arguments", "run"]

COMMANDS = {
    "report": Command(
        "kvstore.codec.report", "bits, error and lossless size of each scheme; also as a picture"
    ),
}


def add_arguments(parser: ArgumentParser) -> None:
    add_commands(parser, COMMANDS)


def run(args: Namespace) -> int:
    return run_command("codec", COMMANDS, args)
