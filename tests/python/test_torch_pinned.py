"""Pinning the host tier's memory, without a GPU: what CUDA would be asked for, and what is said
where there is none."""

from __future__ import annotations

import ctypes
from pathlib import Path

import kvstore
import pytest
import stores
from stores import namespace, open_store, store_prompt

torch = pytest.importorskip("torch", reason="needs torch")
from kvstore.torch.pinned import PinnedArena, register_arena  # noqa: E402

pytestmark = pytest.mark.torch


class Books:
    """A CUDA runtime without a device: it writes down what is registered."""

    def __init__(self, answer: int = 0) -> None:
        self.answer = answer
        self.registered: dict[int, tuple[int, int]] = {}

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        if self.answer == 0:
            self.registered[address] = (size, flags)
        return self.answer

    def cudaHostUnregister(self, address: int) -> int:
        if self.answer == 0:
            del self.registered[address]
        return self.answer


@pytest.mark.parametrize(("arena", "flags"), [("private", 1), ("shared", 9)])
def test_views_lie_in_the_registered_range(tmp_path: Path, arena: str, flags: int) -> None:
    books = Books()
    with open_store(tmp_path, arena=arena) as store:
        ns = namespace(store)
        tokens, bodies = store_prompt(ns, 1, 3)
        with PinnedArena(store.arena_range(), books) as pinned:
            assert pinned.nbytes == store.stats()["host"]["arena"]
            assert books.registered == {pinned.address: (pinned.nbytes, flags)}
            with ns.lease(ns.match(tokens)) as lease:
                array = stores.array(lease[1])
                start = array.ctypes.data - pinned.address
                assert 0 <= start <= pinned.nbytes - array.nbytes
                there = ctypes.string_at(pinned.address + start, array.nbytes)
                assert there == bodies[1].tobytes()
        assert books.registered == {}


def test_registered_memory_outlives_the_store(tmp_path: Path) -> None:
    books = Books()
    store = open_store(tmp_path)
    pinned = PinnedArena(store.arena_range(), books)
    store.close()
    del store
    # Mapped still: an unmapped address would end the process.
    assert len(ctypes.string_at(pinned.address + pinned.nbytes - 1, 1)) == 1
    pinned.close()
    pinned.close()
    assert books.registered == {}


def test_a_refusal_is_an_error_with_its_reason(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        with pytest.raises(kvstore.StoreIOError, match=r"bytes says 2 \(cudaError_t\)"):
            PinnedArena(store.arena_range(), Books(answer=2))
        if not torch.cuda.is_available():
            with pytest.raises(kvstore.StoreIOError, match="there is no CUDA device here"):
                register_arena(store)
    with pytest.raises(kvstore.ClosedError):
        store.arena_range()
