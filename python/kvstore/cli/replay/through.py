"""The replay itself: one trace through one real store, whole requests at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kvstore
from kvstore import _core
from kvstore.cli.output import WrongUse
from kvstore.cli.replay.payload import Ids, keys, payloads, wrong_bytes
from kvstore.layouts import Group, Layout

__all__ = ["Replayed", "replay"]

MIB = 1 << 20
BATCH = 512
"""Blocks that are read or put at once: enough for any queue, few megabytes."""
PATIENCE = 60.0
"""Seconds that a put may take."""


@dataclass
class Replayed:
    """What a replay came to. Counts are blocks where the name does not say otherwise."""

    trace: str
    policy: str
    capacity_blocks: int
    requests: int = 0
    blocks_requested: int = 0
    blocks_hit: int = 0
    hits_host: int = 0
    hits_disk: int = 0
    bytes_written: int = 0
    """Payload bytes that went to disk."""
    bytes_read: int = 0
    """Payload bytes that came from disk."""
    bytes_compared: int = 0
    """Payload bytes that were given back and compared, from whatever tier."""
    wrong_bytes: int = 0
    puts_rejected: int = 0
    """Blocks of a request larger than the whole capacity."""
    seconds: float = 0.0
    hits: list[int] = field(default_factory=list)
    """Blocks that each request hit."""

    @property
    def hit_ratio(self) -> float:
        return self.blocks_hit / self.blocks_requested if self.blocks_requested else 0.0


def replay(
    trace: Path,
    directory: Path,
    *,
    capacity: str,
    policy: str,
    host_bytes: int,
    payload_bytes: int,
    head: int | None,
    progress: Callable[[str], None],
) -> Replayed:
    """Replay `trace` through a new store in `directory`."""
    if payload_bytes % 8 or not 8 <= payload_bytes <= 4 * MIB:
        raise WrongUse(f"--payload {payload_bytes}: must be a multiple of 8 bytes up to 4MiB")
    if directory.exists() and any(directory.iterdir()):
        raise WrongUse(f"--store {directory}: not empty: give a new directory")
    # Raises if the ids of the trace name no prefixes.
    unique = _core.trace_info(trace, head)["unique_blocks"]
    blocks = _core.capacity_blocks(capacity, unique)
    found = Replayed(trace.name, policy, blocks)
    begin = time.perf_counter()
    store = _open(directory, blocks, policy, host_bytes, payload_bytes)
    try:
        through = _Through(store, payload_bytes, found)
        for _, _, _, ids in _core.read_trace(trace, head):
            through.request(np.frombuffer(ids, np.uint64))
            if found.requests % 50 == 0:
                progress(f"{found.requests:,} requests, hit ratio {found.hit_ratio:.4f}")
        through.finish(store.stats()["counters"])
    finally:
        store.close()
    found.seconds = time.perf_counter() - begin
    return found


def _open(
    directory: Path, blocks: int, policy: str, host_bytes: int, payload_bytes: int
) -> kvstore.Store:
    """A store that keeps `blocks` on disk, with room to write the next before one is gone."""
    slot = -(-payload_bytes // 4096) * 4096
    disk_bytes = 128 * MIB + (blocks + blocks // 4) * (slot + 64)
    return kvstore.open(
        directory,
        host_bytes=host_bytes,
        disk_bytes=disk_bytes,
        max_disk_bytes=disk_bytes,
        disk_objects=blocks,
        objects=blocks + (host_bytes + 128 * MIB) // slot,
        leaf_first=policy == "leaf-lru",
    )


class _Through:
    """The store's side of a replay."""

    def __init__(self, store: kvstore.Store, payload_bytes: int, found: Replayed) -> None:
        layout = Layout.opaque("replay", 1, [Group("payload", payload_bytes, [0])])
        self._keyed = store.namespace(layout, model="replay", weights=bytes(32)).keyed
        self._room = np.empty((BATCH, payload_bytes), np.uint8)
        self._found = found

    def request(self, ids: Ids) -> None:
        """Look up, read and compare what is there, store the rest."""
        found = self._found
        found.requests += 1
        found.blocks_requested += len(ids)
        names = keys(ids)
        match = self._keyed.match(names)
        hit = match.matched
        found.hits.append(hit)
        found.blocks_hit += hit
        for at in range(0, hit, BATCH):
            self._read(ids[at : min(at + BATCH, hit)])
        if hit < len(ids):
            self._put(ids[hit:], names[hit:], names[hit - 1].tobytes() if hit else -1)

    def _read(self, ids: Ids) -> None:
        """Every block must be there, with the bytes that its id stands for."""
        room = self._room[: len(ids)]
        given = self._keyed.get_into(keys(ids), room)
        if given < len(ids):
            raise RuntimeError(f"block {ids[given]} was matched and could not be read")
        self._found.bytes_compared += room.nbytes
        self._found.wrong_bytes += wrong_bytes(room, ids)

    def _put(self, ids: Ids, names: NDArray[np.uint8], parent: bytes | int) -> None:
        """Stores blocks, each under the one before, and waits until they survive kill -9."""
        parents = [parent, *range(len(ids) - 1)]
        bodies = payloads(ids, self._room.shape[1])
        batch = self._keyed.put(names, bodies, parents=parents, ack="ssd")
        if not batch.wait(PATIENCE):
            raise RuntimeError(f"a put of {len(ids)} blocks had no answer in {PATIENCE:.0f} s")
        status = batch.status
        self._found.puts_rejected += status.count("rejected")
        if busy := status.count("busy"):
            raise RuntimeError(f"{busy} of {len(ids)} blocks were refused as busy")

    def finish(self, counters: Mapping[str, Any]) -> None:
        """Takes over what the store itself has counted."""
        found = self._found
        found.hits_host, found.hits_disk = counters["hits_host"], counters["hits_disk"]
        found.bytes_read, found.bytes_written = counters["bytes_read"], counters["bytes_written"]
