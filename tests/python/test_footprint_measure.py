"""The objects of a prompt, and the table of what a store counted."""

from __future__ import annotations

import zlib
from fractions import Fraction

import pytest
from kvstore.footprint.measure import Counted, measured_table, objects
from kvstore.layouts import Layout


def test_objects_are_those_of_the_policy() -> None:
    flash = Layout.named("deepseek-v4-flash")
    made = objects(flash, 700)
    assert (made.tokens, made.bodies, made.points) == (640, 5, [640])
    assert (made.windows, made.checkpoints) == ([4], [640])
    lengths = {item: len(made.bytes_of(*item)) for item in made.items()}
    assert lengths[("body", 1)] == 449_824
    assert lengths[("window", 4)] == 3_214_336
    assert lengths[("checkpoint", 640)] == 430_080
    assert made.logical() == sum(lengths.values()) == 5 * 449_824 + 3_214_336 + 430_080
    periodic = objects(flash, 700, every=256)
    assert periodic.checkpoints == [256, 512, 640]
    assert objects(Layout.named("deepseek-v3"), 128).windows == []
    with pytest.raises(ValueError, match="tokens = 100 must be a block of 128"):
        objects(flash, 100)


def test_a_model_made_for_a_bounded_replay_keeps_entries_only() -> None:
    made = objects(Layout.named("deepseek-v4.1-flash"), 1280, every=128)
    assert made.parts() == {"bodies": 1280 * 890, "windows": 0, "checkpoints": 0}
    assert made.points == [1280]


def test_bytes_are_repeatable_and_do_not_shrink() -> None:
    layout = Layout.named("deepseek-v4.1-flash")
    body = objects(layout, 128).bytes_of("body", 0)
    assert body == objects(layout, 256).bytes_of("body", 0)
    assert body != objects(layout, 256).bytes_of("body", 1)
    assert len(zlib.compress(body)) > len(body)


def test_overhead_is_itemised() -> None:
    sizes = {"bodies": 10 * 113_920, "windows": 0}
    one = Counted(
        "v41",
        tokens=1280,
        logical=10 * 113_920,
        parts=sizes,
        manifests=0,
        slots=10 * 114_688,
        descriptors=640,
        index=800,
        reserved=1 << 24,
    )
    assert one.row() == {"measured_logical": "890", "measured_physical": "1793/2"}
    table = measured_table([one])
    assert {row["part"]: row["per_token"] for row in table.rows} == {
        "bodies": 890,
        "logical": 890,
        "lists of parts": 0,
        "rounding up to slots": 6,
        "descriptors": Fraction(1, 2),
        "physical": Fraction(1793, 2),
        "index, in memory": Fraction(5, 8),
        "reserved and unused": Fraction(1 << 24, 1280),
    }
    assert "the overhead is the store's" in table.text()
