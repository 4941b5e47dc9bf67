"""The streaming BLAKE3 of the compiled module against the reference package."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from kvstore._core import Blake3

blake3 = pytest.importorskip("blake3", reason="needs blake3")


def test_pieces_give_the_hash_of_the_whole() -> None:
    data = np.random.default_rng(0).integers(0, 256, 300_001, np.uint8)
    hasher = Blake3()
    assert hasher.digest() == blake3.blake3(b"").digest()
    for start in range(0, len(data), 70_001):
        hasher.update(data[start : start + 70_001])
    assert hasher.digest() == blake3.blake3(data.tobytes()).digest()


def test_every_kind_of_buffer() -> None:
    floats = np.arange(100, dtype=np.float32).reshape(10, 10)
    want = blake3.blake3(floats.tobytes()).digest()
    for data in (floats, floats.tobytes(), bytearray(floats.tobytes()), floats.data):
        hasher = Blake3()
        hasher.update(data)
        assert hasher.digest() == want


def test_what_is_no_memory_in_one_piece_is_refused() -> None:
    with pytest.raises(ValueError, match="data is not C-contiguous"):
        Blake3().update(np.zeros((4, 4))[:, :2])
    with pytest.raises(ValueError, match="data is a int"):
        Blake3().update(3)  # type: ignore[arg-type]


def test_threads_may_share_one() -> None:
    """Equal pieces from several threads: the order does not matter, the count does."""
    hasher, piece = Blake3(), bytes(100_000)
    threads = [threading.Thread(target=hasher.update, args=(piece,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert hasher.digest() == blake3.blake3(bytes(400_000)).digest()
