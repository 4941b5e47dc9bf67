"""Commands of two words, `kvstore GROUP COMMAND ...`: what the group's module is made of."""

from __future__ import annotations

from argparse import REMAINDER, SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping
from importlib import import_module

from kvstore.cli.commands import Command
from kvstore.cli.output import WrongUse

__all__ = ["add_commands", "run_command"]


def add_commands(parser: ArgumentParser, commands: Mapping[str, Command]) -> None:
    """Take one of the commands and all that stands after it."""
    width = max(map(len, commands))
    lines = [f"  {name:{width}}  {command.help}" for name, command in commands.items()]
    parser.usage = f"{parser.prog} COMMAND ..."
    parser.epilog = "commands:\n" + "\n".join(lines)
    parser.epilog += f"\n\n{parser.prog} COMMAND --help says more."
    parser.add_argument("command", choices=commands, metavar="COMMAND", help=SUPPRESS)
    parser.add_argument("words", nargs=REMAINDER, help=SUPPRESS)


def run_command(group: str, commands: Mapping[str, Command], args: Namespace) -> int:
    """Parse what stands after the command by that command's own arguments, and run it. Only its
    module is imported.

    Raises WrongUse where that needs numpy and there is none.
    """
    try:
        module = import_module(commands[args.command].module)
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise WrongUse(
            f"{args.command} needs numpy: pip install 'kvstore-engine[numpy]'"
        ) from error
    parser = ArgumentParser(
        prog=f"kvstore {group} {args.command}",
        description=module.__doc__,
        formatter_class=RawDescriptionHelpFormatter,
        conflict_handler="resolve",  # a command may say more about --json
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    module.add_arguments(parser)
    own = parser.parse_args(args.words)
    own.json = own.json or args.json
    status: int = module.run(own)
    return status
