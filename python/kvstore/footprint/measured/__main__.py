"""``python -m kvstore.footprint.measured write|restore``: one process of a measurement. Its task is
one JSON object on standard input."""

from __future__ import annotations

import json
import sys
import warnings


def main() -> None:
    """Does the task."""
    warnings.simplefilter("ignore")  # those of torch and transformers about their own future
    from kvstore.footprint.measured import stages

    stage = {"write": stages.write, "restore": stages.restore}[sys.argv[1]]
    stage(json.load(sys.stdin))


if __name__ == "__main__":
    main()
