"""The `kvstore` command: `kvstore COMMAND ...`, one module per command.

A command is a module with `add_arguments(parser)` and `run(args) -> int`; its docstring is its
help. `commands.COMMANDS` lists them. Exit status: 0 fine, 1 it found what it looks for (damage, a
bar not met), 2 wrong use, with what would be right.
"""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

from kvstore.cli import output
from kvstore.cli.commands import COMMANDS

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's) and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] not in COMMANDS:
        # --help and --version end here; anything else is an error that lists the commands.
        _top().parse_args(words or ["--help"])
    name, *rest = words
    # Only the module of the command that runs is imported: some need numpy.
    module = import_module(COMMANDS[name].module)
    parser = ArgumentParser(
        prog=f"kvstore {name}",
        description=module.__doc__,
        formatter_class=RawDescriptionHelpFormatter,
        conflict_handler="resolve",  # a command may say more about --json
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    module.add_arguments(parser)
    args = parser.parse_args(rest)
    try:
        status: int = module.run(args)
        sys.stdout.flush()
    except (output.WrongUse, ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # Whoever read our output has had enough (`kvstore sim ... | head`).
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"kvstore {name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"kvstore {name}: interrupted", file=sys.stderr)
        return 130
    return status


def _top() -> ArgumentParser:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {command.help}" for name, command in COMMANDS.items()]
    parser = ArgumentParser(
        prog="kvstore",
        usage="kvstore [--version] COMMAND ...",
        description="An embedded storage engine for the key-value caches of language models.",
        epilog="commands:\n" + "\n".join(lines) + "\n\nkvstore COMMAND --help says more.",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=version("kvstore-engine"))
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=SUPPRESS)
    return parser
