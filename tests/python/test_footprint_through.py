"""kvstore footprint --measure: the objects of a layout in a real store, and its own count."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from kvstore.footprint.measure import Objects, objects
from kvstore.footprint.through import count
from kvstore.layouts import Layout


def measured(cli: Cli, folder: Path, *words: object) -> dict[str, Any]:
    ended = cli("footprint", *words, "--measure", folder, "--json")
    assert ended.status == 0, ended.err
    found: dict[str, Any] = ended.json
    return found


def by_part(found: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    rows = found["tables"]["measured"]["rows"]
    return {row["part"]: row for row in rows if row["name"] == name}


def test_v41_flash_is_890_in_a_slot_of_896(cli: Cli, tmp_path: Path) -> None:
    """The computed table, counted: 890 B per token, 896 in the slot, 0.5 of descriptor."""
    name = "deepseek-v4.1-flash"
    found = measured(cli, tmp_path, name)
    assert {row["measured_logical"] for row in found["rows"]} == {"890"}
    assert {row["measured_physical"] for row in found["rows"]} == {"1793/2"}
    parts = by_part(found, name)
    computed = found["tables"]["overhead"]["rows"][0]
    blocks = 1280 // 128
    assert (
        parts["logical"]["bytes"] == parts["bodies"]["bytes"] == 1280 * Fraction(computed["body"])
    )
    assert parts["rounding up to slots"]["bytes"] == 1280 * Fraction(computed["rounding"])
    assert parts["descriptors"]["bytes"] == blocks * 64
    assert parts["physical"]["per_token"] == "1793/2"
    assert parts["reserved and unused"]["bytes"] > 0
    inspected = cli("inspect", tmp_path / name, "--json").json
    assert inspected["disk"]["objects"] == blocks, "the store stays, to be looked at"
    assert cli("check", tmp_path / name, "--json").json["damaged"] == []


def test_windows_and_checkpoints_are_the_arithmetic_s(cli: Cli, tmp_path: Path) -> None:
    name = "deepseek-v4-flash"
    found = measured(cli, tmp_path, name, "--tokens", 700, "--interval", 256)
    layout = Layout.named(name)
    parts = by_part(found, name)
    assert parts["bodies"]["bytes"] == 5 * layout.body_bytes
    assert parts["windows"]["bytes"] == 3 * layout.window_bytes
    assert parts["checkpoints"]["bytes"] == 3 * layout.checkpoint_bytes
    assert parts["logical"]["bytes"] == objects(layout, 700, every=256).logical()
    slots = [
        (5, layout.body_bytes),
        (3, layout.window_bytes),
        (3, layout.checkpoint_bytes),
    ]
    rounded = sum(number * (-(-size // 4096) * 4096) for number, size in slots)
    assert parts["physical"]["bytes"] == rounded + 11 * 64


@pytest.mark.parametrize(
    ("name", "tokens", "in_parts", "slots"),
    [
        ("llama-3-8b", 64, 1, 3),  # a body of 8 MiB: stored in parts
        ("gemma-3-1b", 640, 0, 18),  # windows, no checkpoints
        ("qwen3-next-80b-a3b", 128, 1, 38),  # a state of 74 MiB, cut where its 36 layers begin
    ],
)
def test_logical_bytes_are_exact(
    tmp_path: Path, name: str, tokens: int, in_parts: int, slots: int
) -> None:
    layout = Layout.named(name)
    counted = count(name, layout, tmp_path / "store", tokens, None)
    made = objects(layout, tokens)
    assert counted.tokens == made.tokens
    assert counted.logical == made.logical() == sum(counted.parts.values())
    assert counted.manifests == in_parts * 4096, "one list of each object in parts"
    assert counted.descriptors == slots * 64
    assert 0 <= counted.slots - counted.logical - counted.manifests < slots * 4096


def test_what_does_not_come_back_is_told(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read side expects other bytes than were written: status 1, with the object."""
    bytes_of, asked = Objects.bytes_of, []

    def turned(self: Objects, area: str, at: int) -> bytes:
        asked.append(at)
        data = bytes_of(self, area, at)
        return data[::-1] if at == 3 and asked.count(3) == 2 else data

    monkeypatch.setattr(Objects, "bytes_of", turned)
    ended = cli("footprint", "deepseek-v4.1-flash", "--measure", tmp_path)
    assert ended.status == 1
    assert "body 3 came back with other bytes" in ended.err
    with pytest.raises(ValueError, match="is there already"):
        count("x", Layout.named("deepseek-v4.1-flash"), tmp_path, 128, None)


def test_a_folder_that_is_taken_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "deepseek-v4.1-flash").mkdir()
    ended = cli("footprint", "deepseek-v4.1-flash", "--measure", tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert "is there already" in ended.err
    ended = cli("footprint", "deepseek-v4.1-flash", "--measure", tmp_path / "b", "--tokens", 100)
    assert ended.status == 2
    assert "tokens = 100 must be a block of 128" in ended.err


def test_the_count_is_in_every_form(cli: Cli, tmp_path: Path) -> None:
    words = ["footprint", "deepseek-v4.1-flash", "--tokens", 256]
    ended = cli(*words, "--measure", tmp_path / "a", "--out", tmp_path / "out.csv")
    assert ended.status == 0, ended.err
    assert "reserved and unused" in (tmp_path / "out-measured.csv").read_text()
    shown = cli(*words, "--measure", tmp_path / "b").out
    assert "Counted in a store (the overhead is the store's" in shown
