"""The acceptance replays of the public traces, through a real store: make replay-check.

`mooncake_conversation` must hit as its published leaf-first LRU curve says, within 0.001, and as
the ideal when nothing is evicted; the first 2,000 requests of `agentic_cc_gap15` must hit exactly
as `kvstore sim`, request by request. No byte may be wrong. Status 1 if any of it fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PUBLISHED = ["0.01", "0.02", "0.05", "0.1", "0.2", "1"]
AGENTIC_CAPACITIES = ["2000", "8000", "32000"]
TOLERANCE = 0.001


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path, help="folder of the traces and their stats.json")
    parser.add_argument("--dir", type=Path, help="where the stores are made (default: temporary)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
        met = [*mooncake(args.traces, Path(scratch)), *agentic(args.traces, Path(scratch))]
    print(f"{sum(met)} of {len(met)} met")
    return 0 if all(met) else 1


def mooncake(traces: Path, scratch: Path) -> list[bool]:
    stats = json.loads((traces / "stats.json").read_text())["mooncake_conversation"]
    curve = stats["lru_prefix_hit_by_fraction_of_unique"]
    met = []
    for fraction in PUBLISHED:
        capacity = f"{float(fraction) * 100:g}%"
        found = replay(traces / "mooncake_conversation.jsonl.gz", scratch, capacity)
        expected = curve[fraction]
        good = abs(found["hit_ratio"] - expected) <= TOLERANCE and not found["wrong_bytes"]
        say(found, capacity, f"published {expected:.4f}", good)
        met.append(good)
    return met


def agentic(traces: Path, scratch: Path) -> list[bool]:
    trace = traces / "agentic_cc_gap15.jsonl.gz"
    met = []
    for capacity in AGENTIC_CAPACITIES:
        words = ["--head", "2000", "--per-request"]
        found = replay(trace, scratch, capacity, *words)
        (row,) = kvstore("sim", trace, "--policy", "leaf-lru", "--capacity", capacity, *words)[
            "rows"
        ]
        good = found["hits"] == row["hits"] and not found["wrong_bytes"]
        differ = sum(a != b for a, b in zip(found["hits"], row["hits"], strict=True))
        say(found, capacity, f"{differ} requests differ from the simulator", good)
        met.append(good)
    return met


def replay(trace: Path, scratch: Path, capacity: str, *words: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=scratch) as store:
        return kvstore("replay", trace, "--store", store, "--capacity", capacity, *words)


def kvstore(*words: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "kvstore.cli", *map(str, words), "--json"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)}: status {ended.returncode}")
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def say(found: dict[str, Any], capacity: str, beside: str, good: bool) -> None:
    print(
        f"{'met   ' if good else 'NOT   '}{found['trace']} at {capacity}: "
        f"hit ratio {found['hit_ratio']:.4f}, {beside}; {found['wrong_bytes']} wrong bytes, "
        f"{found['bytes_read'] / 1e9:.2f} GB read, {found['bytes_written'] / 1e9:.2f} GB written, "
        f"{found['seconds']:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
