"""kvstore footprint --measured: the arithmetic, the count of a store's files, and what is kept of
the last run for docs/lineage.md."""

from __future__ import annotations

import json
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from kvstore.footprint.measured import Record, as_rows, disk
from kvstore.footprint.measured.keeping import (
    LIMIT,
    TAIL,
    Keeping,
    chunk_tokens,
    fitting,
    policies,
)
from kvstore.footprint.measured.record import from_rows, measured_table
from kvstore.footprint.through import count
from kvstore.layouts import Layout, architectures
from stores import HYBRID, LARGE, LAYOUT, namespace, open_store, rows, store_prompt

END = Keeping("prompt end")


def named(name: str, tokens: int) -> list[str]:
    return [keeping.title for keeping, _ in policies(Layout.named(name), tokens)]


def test_a_prompt_is_shortened_to_512_mib() -> None:
    for name, tokens in [("deepseek-v3.2", 4096), ("deepseek-llm-7b", 1088), ("kimi-k3", 2944)]:
        layout = Layout.named(name)
        assert fitting(layout, 4096) == tokens
        assert END.kept(layout, tokens).sizes().logical <= LIMIT
        longer = END.kept(layout, tokens + layout.block_tokens).sizes().logical
        assert longer > LIMIT or tokens == 4096
    assert fitting(Layout.named("deepseek-v4.1-flash"), 700) == 640, "whole blocks"
    assert fitting(Layout.named("deepseek-llm-7b"), 4096, limit=1) == 64, "one block at least"


def test_policies_are_those_that_differ_and_fit() -> None:
    assert named("deepseek-v3", 4096) == ["entries only"]
    every = ["entries only", "prompt end", "every 1,024", "all windows"]
    assert named("deepseek-v4-flash", 4096) == every
    assert named("deepseek-v4-flash", 640) == ["entries only", "prompt end", "all windows"]
    assert named("kimi-k3", 2944) == ["entries only", "prompt end"], "two states are above 512 MiB"
    assert named("mistral-7b-v0.1", 4096)[0] == "prompt end", "there are no entries"
    defaults = {
        name: [keeping.title for keeping, default in policies(Layout.named(name), 512) if default]
        for name in ("deepseek-v3", "deepseek-v4-flash", "deepseek-v4.1-flash")
    }
    assert list(defaults.values()) == [["entries only"], ["prompt end"], ["entries only"]]


def test_chunks_leave_the_windows_of_their_blocks() -> None:
    wanted = {"llama-3-8b": 512, "gemma-3-27b": 512, "gemma-3-1b": 256, "gpt-oss-20b": 64}
    assert {name: chunk_tokens(Layout.named(name)) for name in wanted} == wanted
    assert chunk_tokens(Layout.named("deepseek-v4-pro")) == 128


def test_where_a_prompt_goes_on() -> None:
    flash, newest = (Layout.named(f"deepseek-{v}-flash") for v in ("v4", "v4.1"))
    assert END.kept(flash, 640).usable() == 640
    assert END.kept(flash, 640).checkpoints == (640,)
    entries = Keeping("entries only", end=False, windows="none")
    assert entries.kept(newest, 640).approximate()
    assert entries.kept(newest, 640).usable() == 640, "by a bounded replay"
    assert entries.kept(Layout.named("qwen3-next-80b-a3b"), 640).usable() == 0, "no state"
    assert 0 < TAIL < 64


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("llama-3-8b", 64),
        ("gemma-3-1b", 640),
        ("qwen3-next-80b-a3b", 128),
        ("deepseek-v4-pro", 256),
    ],
)
def test_the_arithmetic_is_what_files_hold(tmp_path: Path, name: str, tokens: int) -> None:
    """Slots, lists of parts and descriptors too, of objects bare and in parts."""
    layout = Layout.named(name)
    counted = count(name, layout, tmp_path / "store", tokens, None)
    found = disk.count(tmp_path / "store")
    assert found == END.kept(layout, tokens).sizes()
    assert (found.logical, found.manifests) == (counted.logical, counted.manifests)
    assert (found.slots, found.descriptors) == (counted.slots, counted.descriptors)
    assert disk.occupied(tmp_path / "store") > found.physical


def test_files_are_counted_without_the_engine(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store_prompt(namespace(store, LAYOUT), 1, 5)
        store_prompt(namespace(store, LARGE), 2, 2)
        hybrid = namespace(store, HYBRID)
        tokens, _ = store_prompt(hybrid, 3, 3)
        ends = {
            64: rows(4, 1, HYBRID.checkpoint_bytes)[0],
            192: rows(5, 1, HYBRID.checkpoint_bytes)[0],
        }
        more = hybrid.put(
            tokens,
            None,
            windows={2: rows(6, 1, HYBRID.window_bytes)[0]},
            checkpoints=ends,
            ack="ssd",
        )
        assert more.wait(30)
        assert more.status.accepted, more.status
        stats = store.stats()["disk"]
    found = disk.count(tmp_path)
    assert found.objects == {"body": 10, "window": 1, "checkpoint": 2}
    assert (
        found.areas["body"] == 5 * LAYOUT.body_bytes + 2 * LARGE.body_bytes + 3 * HYBRID.body_bytes
    )
    assert found.manifests == 2 * 4096
    assert found.logical + found.manifests == stats["logical"]
    assert (found.slots, found.descriptors) == (stats["slots"], stats["descriptors"])


def test_a_damaged_table_is_told(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store_prompt(namespace(store), 1, 2)
    table = tmp_path / "table"
    data = bytearray(table.read_bytes())
    at = next(i for i in range(0, len(data), 64) if any(data[i : i + 64]))
    data[at + 48] ^= 1  # a length
    table.write_bytes(data)
    with pytest.raises(disk.Damaged, match="its checksum is wrong"):
        disk.count(tmp_path)
    (tmp_path / "superblock").write_bytes(bytes(128 << 10))
    with pytest.raises(disk.Damaged, match="no valid superblock"):
        disk.count(tmp_path)


def test_wrong_use_is_told(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    for words, message in [
        (["--dir", tmp_path / "taken"], "must be empty, or not be there"),
        (["--tokens", 100], "tokens = 100 must be a block of 128 or more"),
        (["--measure", tmp_path / "m"], "one of them at a time"),
    ]:
        ended = cli("footprint", "deepseek-v4.1-flash", "--measured", *words)
        assert (ended.status, ended.out) == (2, "")
        assert message in ended.err


def last_run() -> list[Record]:
    text = files("kvstore.footprint.lineage").joinpath("measured.json").read_text(encoding="utf-8")
    return from_rows(json.loads(text)["rows"])


def test_rows_survive_json() -> None:
    records = last_run()
    assert from_rows(json.loads(json.dumps(as_rows(records)))) == records


def test_every_architecture_was_measured_or_has_a_reason() -> None:
    by_name: dict[str, list[Record]] = {}
    for record in last_run():
        by_name.setdefault(record.name, []).append(record)
    assert list(by_name) == [architecture.name for architecture in architectures()]
    for name, records in by_name.items():
        assert len([record for record in records if record.default]) == 1, name
        for record in records:
            assert (record.counted is None) == record.note.startswith("computed only: "), name


def test_what_was_counted_is_the_arithmetic() -> None:
    """Logical bytes exactly, of each kind of object; physical within 1%, all of it itemised."""
    for one in last_run():
        layout = Layout.named(one.name, one.form)
        where = (one.name, one.policy)
        assert one.per_token == layout.bytes_per_token(), where
        assert one.computed.areas["body"] == layout.entry_bytes(one.tokens), where
        assert one.computed.areas["body"] == one.per_token * one.tokens, where
        assert one.computed.areas["window"] == (
            one.computed.objects["window"] * layout.window_bytes
        ), where
        assert one.computed.areas["checkpoint"] == (
            one.computed.objects["checkpoint"] * layout.checkpoint_bytes
        ), where
        if one.counted is None:
            continue
        assert one.counted.objects == one.computed.objects, where
        assert one.counted.areas == one.computed.areas, where
        assert one.counted.physical * 100 <= one.counted.logical * 101, where
        over = one.counted.rounding + one.counted.manifests + one.counted.descriptors
        assert one.counted.physical - one.counted.logical == over, where
        assert one.counted == one.computed, where


def test_the_numbers_of_the_claims() -> None:
    cells: dict[str, dict[str, Any]] = {
        str(row["name"]): row
        for row in measured_table(last_run()).rows
        if str(row["policy"]).startswith("entries only")
    }
    newest = cells["deepseek-v4.1-flash"]
    assert newest["measured_logical"] == 890
    assert (newest["in_slots"], newest["descriptors"]) == (896, Fraction(1, 2))
    assert f"{float(cells['deepseek-v4-pro']['percent_of_v32']):.2f}" == "10.47"
    assert f"{float(cells['deepseek-v4-flash']['percent_of_v32']):.2f}" == "7.31"
    assert cells["deepseek-v3.2"]["percent_of_v32"] == 100
