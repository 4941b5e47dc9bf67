"""``--measure`` through a real store: write the objects of a prompt, close, open again, read all of
it back and compare, and take the store's own count."""

from __future__ import annotations

from pathlib import Path

import kvstore
from kvstore._core import Layout, inspect
from kvstore.footprint.measure import Counted, Objects, objects

#: Bytes of objects that go into one put.
_BATCH = 16 << 20
#: Room beside the objects, for segments of each class that are not full: at least 16 MiB each.
_ROOM = 512 << 20
#: Seconds for one batch to reach the disk.
_PATIENCE = 120


class Lost(Exception):
    """A store gave other bytes than it was given, or none."""


def count(name: str, layout: Layout, folder: Path, tokens: int, every: int | None) -> Counted:
    """What a new store in ``folder`` counts for one prompt of ``tokens`` tokens with a resume point
    every ``every`` tokens. The store stays there.

    Raises ValueError where nothing is to be stored or the folder is taken, and Lost where the store
    does not give back what it was given.
    """
    made = objects(layout, tokens, every=every)
    if not made.logical():
        raise ValueError(f"{name}: {tokens} tokens of it leave nothing to store")
    if folder.exists():
        raise ValueError(f"--measure: {folder} is there already; what is counted is a new store")
    folder.mkdir(parents=True)
    with _open(folder, made) as store:
        _write(_namespace(store, layout), made)
    with _open(folder, made) as store:
        logical = _read(_namespace(store, layout), made)
        stats, found = store.stats(), inspect(store)
    disk = stats["disk"]
    kept = sum(namespace["objects"] for namespace in found["namespaces"])
    if kept != disk["objects"]:
        raise Lost(f"{name}: {kept} objects in the namespace, {disk['objects']} in slots")
    occupied = disk["slots"] + disk["descriptors"]
    return Counted(
        name=name,
        tokens=made.tokens,
        logical=logical,
        parts=made.parts(),
        manifests=disk["logical"] - logical,
        slots=disk["slots"],
        descriptors=disk["descriptors"],
        index=stats["host"]["index"],
        reserved=sum(file.stat().st_blocks * 512 for file in folder.iterdir()) - occupied,
    )


def _open(folder: Path, made: Objects) -> kvstore.Store:
    """The store, with room for the objects and one lease of all of them."""
    room = 2 * made.logical() + _ROOM
    return kvstore.open(folder, host_bytes=room, disk_bytes=room, max_disk_bytes=room)


def _namespace(store: kvstore.Store, layout: Layout) -> kvstore.Namespace:
    # Of the weights nothing is known, and nobody else shares this store.
    return store.namespace(layout, model=layout.name, weights=bytes(32))


def _token_ids(made: Objects) -> range:
    """Any ids will do, one more than the blocks have: the last token is never a hit."""
    return range(made.tokens + 1)


def _write(namespace: kvstore.Namespace, made: Objects) -> None:
    block = made.layout.block_tokens
    ids = list(_token_ids(made))
    step = max(1, _BATCH // max(made.layout.body_bytes, 1))
    for first in range(0, made.tokens // block, step):
        end = min(first + step, made.tokens // block)
        points = [n for n in made.checkpoints if first * block < n <= end * block]
        batch = namespace.put(
            ids[: end * block],
            [made.bytes_of("body", i) for i in range(first, end)] if made.bodies else None,
            first_block=first,
            windows={i: made.bytes_of("window", i) for i in made.windows if first <= i < end},
            checkpoints={n: made.bytes_of("checkpoint", n) for n in points},
            ack="ssd",
        )
        if not batch.wait(_PATIENCE) or not batch.status.accepted:
            (area, at), why = next(
                (item, status)
                for item, status in zip(batch.items, batch.status, strict=True)
                if not status.accepted
            )
            raise Lost(f"{made.layout.name}: {area} {at} was not stored: {why!r}")


def _read(namespace: kvstore.Namespace, made: Objects) -> int:
    """Goes on from every resume point as a prompt would, until each object was read once. The bytes
    that came back."""
    back = 0
    ids = list(_token_ids(made))
    unread = set(made.items())
    for point in made.points:
        plan = namespace.match(ids[: point + 1], allow_approximate=True)
        with namespace.lease(plan) as lease:
            got = lease.plan
            named = [("body", i) for i in range(*got.bodies)]
            named += [("window", i) for i in range(*got.windows)]
            if got.checkpoint is not None:
                named.append(("checkpoint", got.checkpoint))
            for area, at in [item for item in named if item in unread]:
                block = 0 if area == "checkpoint" else at
                stored = b"".join(bytes(part) for part in lease.parts(block, area))
                if stored != made.bytes_of(area, at):
                    raise Lost(f"{made.layout.name}: {area} {at} came back with other bytes")
                back += len(stored)
            unread.difference_update(named)
    if unread:
        area, at = min(unread)
        raise Lost(f"{made.layout.name}: {len(unread)} objects did not come back ({area} {at})")
    return back
