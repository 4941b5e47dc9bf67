"""The objects of a prompt, and the table of what a store counted."""

from __future__ import annotations

import zlib

import pytest
from kvstore.footprint.measure import Counted, measured_table, objects, rows
from kvstore.layouts import Layout


def test_objects_are_those_of_the_policy() -> None:
    flash = Layout.named("deepseek-v4-flash")
    made = objects(flash, 700)
    assert (made.tokens, len(made.bodies)) == (640, 5)
    assert {len(body) for body in made.bodies} == {449_824}
    assert list(made.windows) == [4]
    assert {n: len(data) for n, data in made.checkpoints.items()} == {640: 430_080}
    assert made.logical() == 5 * 449_824 + 3_214_336 + 430_080
    periodic = objects(flash, 700, every=256)
    assert list(periodic.checkpoints) == [256, 512, 640]
    assert objects(Layout.named("deepseek-v3"), 128).windows == {}
    with pytest.raises(ValueError, match="tokens = 100 must be a block of 128"):
        objects(flash, 100)


def test_bytes_are_repeatable_and_do_not_shrink() -> None:
    layout = Layout.named("deepseek-v4.1-flash")
    body = objects(layout, 128).bodies[0]
    assert body == objects(layout, 256).bodies[0]
    assert len(zlib.compress(body)) > len(body)


def test_overhead_is_itemised() -> None:
    counted = [Counted("v41", 1280, 10 * 113_920, 10 * 114_688, 640, 800, reserved=1 << 24)]
    assert list(rows(counted)) == [
        {"name": "v41", "measured_logical": "890", "measured_physical": "1793/2"}
    ]
    text = measured_table(counted).text()
    assert "the overhead is the store's" in text
    assert "16,777,216" in text
