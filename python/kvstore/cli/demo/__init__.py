"""A real model's prefix survives kill -9.

One process prefills a long prompt with the built-in model, stores its cache and goes on to store
others, until SIGKILL ends it in the middle of a put. A second process opens the same directory,
takes the prefix back instead of computing it, and goes on generating: the same tokens.

Status 1 if it does not: other tokens, an acknowledged block lost, a wrong byte, damage on disk.
"""

from __future__ import annotations

import os
from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path

from kvstore.cli.output import WrongUse, print_json

__all__ = ["add_arguments", "run"]

LONGEST = 8000


def add_arguments(parser: ArgumentParser) -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument(
        "--dir",
        type=Path,
        default=cache / "kvstore" / "demo",
        metavar="D",
        help="directory of the store (default: %(default)s)",
    )
    parser.add_argument(
        "--tokens", type=int, default=7000, metavar="N", help="of the long prompt (default: 7000)"
    )
    parser.add_argument(
        "--torch", action="store_true", help="through transformers and PyTorch instead of numpy"
    )
    # One program, two processes: the parent runs it again with one of these.
    parser.add_argument("--stage", choices=["write", "restore"], help=SUPPRESS)
    parser.add_argument("--tenant", help=SUPPRESS)


def run(args: Namespace) -> int:
    if not 128 <= args.tokens <= LONGEST:
        raise WrongUse(f"--tokens {args.tokens}: must be from 128 to {LONGEST}")
    if args.torch:
        return _with_torch(args)
    try:
        if args.stage == "write":
            from kvstore.cli.demo.writing import write

            write(args.dir, args.tokens, args.tenant)
            return 0
        if args.stage == "restore":
            from kvstore.cli.demo.restoring import restore

            restore(args.dir, args.tokens, args.tenant)
            return 0
        from kvstore.cli.demo.story import tell
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise WrongUse("needs numpy: pip install 'kvstore-engine[numpy]'") from None
    found = tell(args.dir, args.tokens, quiet=args.json)
    if args.json:
        print_json(found)
    return 0 if found["ok"] else 1


def _with_torch(args: Namespace) -> int:
    try:
        if args.stage is not None:
            from kvstore.cli.demo import torch_stages

            stage = {"write": torch_stages.write, "restore": torch_stages.restore}[args.stage]
            stage(args.dir, args.tokens, args.tenant)
            return 0
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name not in ("numpy", "torch", "transformers"):
            raise
        wanted = "torch, transformers and numpy: pip install 'kvstore-engine[torch,numpy]'"
        raise WrongUse(f"--torch needs {wanted}") from None
    from kvstore.cli.demo.with_torch import tell_torch

    found = tell_torch(args.dir, args.tokens, quiet=args.json)
    if args.json:
        print_json(found)
    return 0 if found["ok"] else 1
