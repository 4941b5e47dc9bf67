"""kvstore replay: real reads, and the hits of the simulator."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli
from kvstore.cli.replay.payload import keys, payloads, wrong_bytes

FIELDS = {
    "trace",
    "policy",
    "requests",
    "blocks_requested",
    "blocks_hit",
    "hit_ratio",
    "hits_host",
    "hits_disk",
    "capacity_blocks",
    "bytes_written",
    "bytes_read",
    "bytes_compared",
    "wrong_bytes",
    "puts_rejected",
    "seconds",
}


def sessions(path: Path, *, seed: int, requests: int) -> Path:
    """A trace of growing conversations over shared prefixes."""
    chance = random.Random(seed)
    fresh = iter(range(10**9))
    chains = [[next(fresh) for _ in range(chance.randint(1, 30))] for _ in range(4)]
    with path.open("w") as file:
        for n in range(requests):
            chain = chance.choice(chains)
            chain = chain[: chance.randint(1, len(chain))] + [
                next(fresh) for _ in range(chance.randint(0, 6))
            ]
            chains.append(chain)
            row = {"timestamp": n, "input_length": 1, "output_length": 1, "hash_ids": chain}
            file.write(json.dumps(row) + "\n")
    return path


def test_payloads_differ_in_every_word_and_say_where_they_differ() -> None:
    ids = np.array([0, 1, 2, 2**63, 2**64 - 1], np.uint64)
    bodies = payloads(ids, 64)
    words = bodies.view(np.uint64)
    assert len(np.unique(words)) == words.size
    assert len(np.unique(keys(ids), axis=0)) == len(ids)
    assert wrong_bytes(bodies, ids) == 0
    bodies[3, 5] ^= 1
    bodies[4, 63] ^= 0x80
    assert wrong_bytes(bodies, ids) == 2
    # A whole block in another's place: no word of it is right.
    assert wrong_bytes(payloads(ids[:1], 64), ids[1:2]) >= 8


def test_a_trace_without_eviction_hits_what_can_be_hit(
    cli: Cli, trace: Path, tmp_path: Path
) -> None:
    ended = cli("replay", trace, "--store", tmp_path / "kv", "--json")
    assert ended.status == 0
    found = ended.json
    assert set(found) == FIELDS
    assert (found["requests"], found["blocks_requested"], found["blocks_hit"]) == (4, 12, 5)
    assert found["hit_ratio"] == 5 / 12
    assert found["hits_disk"] == 5, "without a host tier all is read from disk"
    assert (found["bytes_written"], found["bytes_read"]) == (7 * 4096, 5 * 4096)
    assert found["wrong_bytes"] == found["puts_rejected"] == 0


def test_the_report_for_people_has_the_same_figures(cli: Cli, trace: Path, tmp_path: Path) -> None:
    ended = cli("replay", trace, "--store", tmp_path / "kv", "--host", "32MiB")
    assert ended.status == 0
    assert "5 of 12 blocks = 0.4167" in ended.out
    assert "0 bytes wrong" in ended.out


@pytest.mark.parametrize("policy", ["leaf-lru", "lru"])
@pytest.mark.parametrize("capacity", [40, 150, 600])
def test_a_real_store_hits_what_the_simulator_says(
    cli: Cli, tmp_path: Path, policy: str, capacity: int
) -> None:
    """Request by request, under heavy eviction."""
    trace = sessions(tmp_path / "sessions.jsonl", seed=7, requests=250)
    words: list[Any] = ["--policy", policy, "--capacity", capacity, "--json", "--per-request"]
    (simulated,) = cli("sim", trace, *words).json["rows"]
    found = cli("replay", trace, "--store", tmp_path / "kv", *words).json
    assert found["hits"] == simulated["hits"]
    assert found["wrong_bytes"] == 0
    if policy == "leaf-lru":  # plain LRU leaves holes, and a put fills them in its own time
        assert found["bytes_written"] == simulated["blocks_written"] * 4096


@pytest.mark.parametrize("percent", [1, 20])
def test_mooncake_hits_as_published(cli: Cli, shared: Path, tmp_path: Path, percent: int) -> None:
    """The other capacities: make replay-check."""
    traces = shared / "traces"
    stats = json.loads((traces / "stats.json").read_text())["mooncake_conversation"]
    curve = stats["lru_prefix_hit_by_fraction_of_unique"]
    found = cli(
        "replay",
        traces / "mooncake_conversation.jsonl.gz",
        *["--store", tmp_path / "kv", "--capacity", f"{percent}%", "--json"],
    ).json
    assert found["wrong_bytes"] == 0
    assert abs(found["hit_ratio"] - curve[f"{percent / 100:g}"]) <= 0.001


def test_agentic_sessions_hit_as_simulated(cli: Cli, shared: Path, tmp_path: Path) -> None:
    """The first 60 requests under pressure; 2,000 of them: make replay-check."""
    trace = shared / "traces" / "agentic_cc_gap15.jsonl.gz"
    words: list[Any] = ["--capacity", 4000, "--head", 60, "--json", "--per-request"]
    (simulated,) = cli("sim", trace, "--policy", "leaf-lru", *words).json["rows"]
    found = cli("replay", trace, "--store", tmp_path / "kv", *words).json
    assert found["hits"] == simulated["hits"]
    assert found["wrong_bytes"] == 0


@pytest.mark.parametrize(
    ("words", "mend"),
    [
        (["TRACE", "--store", "FULL"], "not empty: give a new directory"),
        (["none.jsonl", "--store", "NEW"], "none.jsonl"),
        (["TRACE", "--store", "NEW", "--capacity", "0"], "must be a number of blocks"),
        (["TRACE", "--store", "NEW", "--payload", "12"], "--payload 12: must be"),
    ],
)
def test_wrong_use_is_refused_with_the_mend(
    cli: Cli, trace: Path, tmp_path: Path, words: list[str], mend: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    places = {"TRACE": trace, "FULL": tmp_path / "full", "NEW": tmp_path / "new"}
    ended = cli("replay", *(places.get(word, word) for word in words))
    assert ended.status == 2
    assert ended.err.startswith("kvstore replay: ")
    assert mend in ended.err
    assert not (tmp_path / "new").exists()
