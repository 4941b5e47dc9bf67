"""kvstore inspect, check and clear: looking after a store."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import kvstore
import numpy as np
import pytest
from conftest import Cli
from kvstore.layouts import Group, Layout

BLOCKS = 12


class Kept(NamedTuple):
    """A closed store with one prompt of two tenants in it."""

    directory: Path
    bodies: np.ndarray

    def hits(self, tenant: str) -> int:
        with kvstore.open(self.directory, host_bytes="32 MiB", disk_bytes="256 MiB") as store:
            return int(namespace(store, tenant).match(tokens()).matched) // 64


def tokens() -> np.ndarray:
    return np.arange(BLOCKS * 64 + 1, dtype=np.uint32)


def namespace(store: kvstore.Store, tenant: str) -> kvstore.Namespace:
    layout = Layout.by_hand("test", 64, [Group("kv", 128, [0, 1])])
    return store.namespace(layout, model="test/model", weights=b"w" * 32, cache_salt=tenant)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    directory = tmp_path / "kv"
    bodies = np.random.default_rng(1).integers(0, 256, (BLOCKS, 64 * 256), np.uint8)
    with kvstore.open(directory, host_bytes="32 MiB", disk_bytes="256 MiB") as store:
        for tenant in ("ann", "ben"):
            batch = namespace(store, tenant).put(tokens(), bodies, ack="ssd")
            assert batch.wait(60)
            assert batch.status.accepted
    return Kept(directory, bodies)


def damage(kept: Kept, block: int) -> None:
    """Flip one bit of a block's payload, wherever its slots are."""
    data = kept.directory / "data"
    content = bytearray(data.read_bytes())
    at = content.find(kept.bodies[block].tobytes())
    assert at >= 0
    content[at + 1000] ^= 4
    data.write_bytes(content)


def test_inspect_shows_what_is_there(cli: Cli, kept: Kept) -> None:
    found = cli("inspect", kept.directory, "--json").json
    assert found["disk"]["objects"] == found["recovered"]["objects"] == 2 * BLOCKS
    assert found["disk_bytes"] == 256 << 20
    (described,) = found["namespaces"]
    assert described["description"]["model"] == "test/model"
    assert described["objects"] == 2 * BLOCKS
    ended = cli("inspect", kept.directory, "--segments")
    assert ended.status == 0
    assert "test/model" in ended.out
    assert "16,384" in ended.out  # the class


def test_inspect_names_no_tenant(cli: Cli, kept: Kept) -> None:
    ended = cli("inspect", kept.directory, "--json")
    assert "ann" not in ended.out
    assert "ben" not in ended.out


def test_check_reads_everything_and_finds_nothing(cli: Cli, kept: Kept) -> None:
    ended = cli("check", kept.directory, "--json")
    assert ended.status == 0
    found = ended.json
    assert (found["objects"], found["bytes"]) == (2 * BLOCKS, 2 * BLOCKS * 64 * 256)
    assert found["damaged"] == []


def test_check_finds_a_flipped_bit_and_repair_removes_its_object(cli: Cli, kept: Kept) -> None:
    damage(kept, 5)
    for _ in range(2):  # without --repair nothing changes
        ended = cli("check", kept.directory, "--json")
        assert ended.status == 1
        (found,) = ended.json["damaged"]
        assert found["why"] == "the checksum differs"
        assert found["bytes"] == 64 * 256
    assert "--repair" in cli("check", kept.directory).out
    ended = cli("check", kept.directory, "--repair", "--json")
    assert (ended.status, ended.json["removed"]) == (1, 1)
    ended = cli("check", kept.directory, "--json")
    assert (ended.status, ended.json["objects"]) == (0, 2 * BLOCKS - 1)
    assert sorted([kept.hits("ann"), kept.hits("ben")]) == [5, BLOCKS]


def test_clear_takes_one_tenant(cli: Cli, kept: Kept) -> None:
    ended = cli("clear", kept.directory, "--tenant", "ann", "--json")
    assert (ended.status, ended.json) == (0, {"objects": BLOCKS})
    assert (kept.hits("ann"), kept.hits("ben")) == (0, BLOCKS)


def test_clear_takes_a_namespace_by_the_digest_that_inspect_shows(cli: Cli, kept: Kept) -> None:
    (shown,) = cli("inspect", kept.directory, "--json").json["namespaces"]
    ended = cli("clear", kept.directory, "--namespace", shown["digest"][:16], "--json")
    assert (ended.status, ended.json) == (0, {"objects": 2 * BLOCKS})
    assert (kept.hits("ann"), kept.hits("ben")) == (0, 0)


def test_clear_all(cli: Cli, kept: Kept) -> None:
    assert cli("clear", kept.directory, "--all").out == f"{2 * BLOCKS} objects cleared\n"
    assert kept.hits("ben") == 0


def test_a_store_that_is_not_there_is_not_made(cli: Cli, tmp_path: Path) -> None:
    for words in (["inspect"], ["check"], ["clear", "--all"]):
        ended = cli(*words, tmp_path / "none")
        assert ended.status == 2
        assert "holds no store" in ended.err
    assert not (tmp_path / "none").exists()


def test_clear_says_what_it_takes(cli: Cli, kept: Kept) -> None:
    assert "one of the arguments --tenant --namespace --all" in cli("clear", kept.directory).err
    ended = cli("clear", kept.directory, "--namespace", "ffff")
    assert ended.status == 2
    assert "no namespace" in ended.err


def test_a_store_in_use_is_refused_with_its_owner(cli: Cli, kept: Kept) -> None:
    """By limits in the same process: another process is named by its pid (see the engine)."""
    with kvstore.open(kept.directory, host_bytes="32 MiB", disk_bytes="256 MiB"):
        ended = cli("inspect", kept.directory)
    assert ended.status == 2
    assert "other options" in ended.err


def test_doctor_says_what_the_machine_gives(cli: Cli, tmp_path: Path) -> None:
    ended = cli("doctor", tmp_path, "--json")
    findings = {one["what"]: one for one in ended.json["findings"]}
    assert {"file system", "I/O", "host memory", "free space", "huge pages"} <= set(findings)
    assert ended.status == int(any(one["mend"] for one in findings.values()))
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
    assert "file system" in cli("doctor", tmp_path).out
    assert cli("doctor", tmp_path / "none").status == 2
