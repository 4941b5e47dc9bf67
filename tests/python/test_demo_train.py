"""The training script of the demo model: 20 seconds of it, to see that the loss falls."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from kvstore.models import MlaConfig, MlaDecoder, MlaWeights, demo
from kvstore.models.demo import train
from kvstore.models.safetensors import read


def test_loss_falls_in_twenty_seconds(tmp_path: Path) -> None:
    out, log = tmp_path / "weights.safetensors", tmp_path / "train.log"
    done = train.main(["--smoke", "--out", str(out), "--log", str(log)])
    # It begins just below 8 bits: nothing is known, but tied embeddings make each byte expect
    # itself, and Python has runs of spaces. 40 steps halve that; a slow machine does fewer.
    first, last = done.losses[0], sum(done.losses[-3:]) / 3
    assert 6.0 < first < 8.5
    assert last < first - 1.0
    assert str(tmp_path) not in log.read_text("utf-8")

    # What it writes is what the numpy model reads.
    stored = read(out)
    assert float(stored.metadata["bits_per_byte_4096_sample"]) < 6.5
    config = MlaConfig.read(demo.config_file())
    model = MlaDecoder(config, MlaWeights.absorb(config, stored.tensors))
    assert model.prefill(b"import os\n", model.new_cache(64)).shape == (10, 256)
