"""The golden vectors beside the repository (../shared/vectors), and what tests share about them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "vectors"

Array = npt.NDArray[Any]


@functools.cache
def load(name: str) -> dict[str, Array]:
    """All arrays of one archive; skips the test where the folder is absent."""
    path = FOLDER / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"golden vectors not found: {path}")
    with np.load(path) as archive:
        return {key: archive[key] for key in archive.files}


class Rows:
    """The block inputs in one source type, with their names."""

    def __init__(self, dtype: str) -> None:
        inputs = load("block_inputs")
        self.dtype = dtype
        self.names = [str(n) for n in inputs["edge_names"]]
        if dtype == "bf16":
            self.x: Array = inputs["bf16_in_bits"]
            self.values: Array = (self.x.astype(np.uint32) << 16).view(np.float32)
        else:
            self.x = inputs["f32_in_bits"].view(np.float32)
            self.values = self.x

    def named(self, *prefixes: str) -> Array:
        """A mask of the rows whose name starts with one of the prefixes."""
        mask = np.zeros(len(self.x), bool)
        for index, name in enumerate(self.names):
            mask[index] = name.startswith(prefixes)
        return mask

    def blocks(self, size: int) -> Array:
        """Values as [rows, blocks, size]."""
        return self.values.reshape(len(self.values), -1, size)


def nibbles(packed: Array) -> Array:
    """FP4 codes, even element in the low nibble."""
    return np.stack([packed & 0xF, packed >> 4], -1).reshape(*packed.shape[:-1], -1)
