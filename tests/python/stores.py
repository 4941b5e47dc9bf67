"""What the tests of the store share: small stores, prompts, and bodies that differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kvstore
import numpy as np
import numpy.typing as npt
from kvstore.layouts import Group, Layout

BLOCK = 64
WEIGHTS = bytes(range(32))

Array = npt.NDArray[np.uint8]

#: Entries only: a resume point at every block end.
LAYOUT = Layout.by_hand("entries", BLOCK, [Group("kv", 192, [0, 1])])

#: Entries, a window of 128 tokens and a state of 96 bytes in one layer each.
HYBRID = Layout.by_hand(
    "hybrid",
    BLOCK,
    [
        Group("kv", 64, [0, 1]),
        Group("local", 32, [2], kind="window", window=128),
        Group("state", 96, [3], kind="state"),
    ],
)

#: Entries and a window of 128 tokens.
WINDOWED = Layout.by_hand(
    "windowed",
    BLOCK,
    [Group("kv", 64, [0, 1]), Group("local", 32, [2], kind="window", window=128)],
)

#: Bodies of 9 MiB, which are stored in parts.
LARGE = Layout.by_hand("large", BLOCK, [Group("kv", 12 * 1024, list(range(12)))])


def open_store(path: Path | str, **options: Any) -> kvstore.Store:
    """A store small enough for tests: 32 MiB of host memory, 256 MiB of disk."""
    small: dict[str, Any] = {"host_bytes": "32 MiB", "disk_bytes": "256 MiB", "objects": 20_000}
    return kvstore.open(path, **(small | options))


def namespace(
    store: kvstore.Store, layout: Layout = LAYOUT, model: str = "tiny", **options: Any
) -> kvstore.Namespace:
    return store.namespace(layout, model=model, weights=WEIGHTS, **options)


def prompt(seed: int, blocks: int, extra: int = 1) -> npt.NDArray[np.int64]:
    """Token ids of some whole blocks and a few tokens more."""
    return np.random.default_rng(seed).integers(0, 2**31, blocks * BLOCK + extra, np.int64)


def rows(seed: int, count: int, length: int) -> Array:
    return np.random.default_rng([seed, length]).integers(0, 256, (count, length), np.uint8)


def bodies(seed: int, blocks: int, layout: Layout = LAYOUT) -> Array:
    return rows(seed, blocks, layout.body_bytes)


def store_prompt(
    ns: kvstore.Namespace, seed: int, blocks: int, ack: str = "ssd"
) -> tuple[npt.NDArray[np.int64], Array]:
    """Puts the bodies of a prompt, waits for it, and gives tokens and bodies."""
    tokens, stored = prompt(seed, blocks), bodies(seed, blocks, ns.layout)
    batch = ns.put(tokens, stored, ack=ack)
    assert batch.wait(30)
    assert batch.status.accepted, batch.status
    return tokens, stored


def array(view: kvstore.View) -> Array:
    """A zero-copy array of a view's bytes."""
    return np.frombuffer(memoryview(view), np.uint8)
