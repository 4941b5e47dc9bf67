"""What one fetch of a device pool got: bodies in slots, copied layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from torch.utils.dlpack import from_dlpack

from kvstore import ClosedError, Lease, Plan
from kvstore.layouts import Layout
from kvstore.torch.lane import Lane

__all__ = ["Fetched", "Page", "pages_by_layer"]


class Page(NamedTuple):
    """Bytes of a body that belong to one group and owner layer."""

    group: str
    offset: int
    length: int
    #: Where the next page begins: what is copied, so that a body comes with its padding.
    end: int


def pages_by_layer(layout: Layout) -> dict[int, list[Page]]:
    """The pages of a body by owner layer, ascending."""
    found: list[tuple[int, int, int, str]] = []
    for group in layout.groups:
        for layer in group.layers:
            place = layout.page(group.name, layer)
            if place is not None and place[0] == "body":
                found.append((place[1], place[2], layer, group.name))
    found.sort()
    ends = [offset for offset, *_ in found[1:]] + [layout.body_bytes]
    pages: dict[int, list[Page]] = {layer: [] for layer in sorted({page[2] for page in found})}
    for (offset, length, layer, name), end in zip(found, ends, strict=True):
        pages[layer].append(Page(name, offset, length, end))
    return pages


class Fetched:
    """The bodies of a plan on the device, for as long as the `with` block lasts: a context manager
    and a sequence. Afterwards their slots may hold other blocks.

    slots[i] is the row of block i in the pool's `bodies`: int64 on the device, as a page table.
    """

    def __init__(
        self,
        lease: Lease,
        bodies: torch.Tensor,
        lane: Lane,
        slots: list[int],
        missing: list[int],
        pages: dict[int, list[Page]],
        ahead: int,
        there: Iterable[torch.cuda.Event],
        keep: Callable[[torch.cuda.Event | None], None],
        release: Callable[[], None],
    ) -> None:
        self.slots = torch.tensor(slots, dtype=torch.int64, device=bodies.device)
        self._lease, self._bodies, self._lane = lease, bodies, lane
        self._keep, self._release = keep, release
        self._rows, self._missing, self._pages, self._ahead = slots, missing, pages, ahead
        self._sources: list[list[torch.Tensor]] | None = None
        self._events: list[torch.cuda.Event | None] = []
        self._open = True
        for event in there:
            lane.guard(event)

    @property
    def plan(self) -> Plan:
        """What was really got: `lease.plan`. Blocks that the pool had are "mirror" there."""
        return self._lease.plan

    @property
    def lease(self) -> Lease:
        """The lease of what was read: windows and the checkpoint are there, in host memory."""
        return self._lease

    def __len__(self) -> int:
        """Blocks."""
        return len(self._rows)

    def __getitem__(self, block: int) -> torch.Tensor:
        """The body of one block: uint8 [body_bytes] on the device. Not to be written."""
        row = self._rows[block]
        self._check()
        self._queue(len(self._pages))
        self._lane.guard(self._events[-1])
        return self._bodies[row]

    def layers(self) -> Iterator[tuple[int, dict[str, torch.Tensor]]]:
        """Owner layers, ascending, with the pages of each group of theirs by name: uint8
        [pool slots, page_bytes], of which the rows in `slots` are this prompt's. Not to be written.

        When a layer comes its pages are there for what the caller's stream is given from then on,
        and the copies of the next `ahead` layers are queued.
        """
        for at, (layer, pages) in enumerate(self._pages.items()):
            self._check()
            self._queue(at + 1 + self._ahead)
            self._lane.guard(self._events[at])
            yield (
                layer,
                {p.group: self._bodies[:, p.offset : p.offset + p.length] for p in pages},
            )

    def close(self, complete: bool = True) -> None:
        """Ends the use of the slots; a second call does nothing. What is not copied yet is copied
        first, or without `complete` left out: then the pool does not keep what was read."""
        if not self._open:
            return
        self._open = False
        try:
            if complete:
                self._queue(len(self._pages))
        finally:
            last = self._events[-1] if self._events else None
            if last is not None:
                last.synchronize()  # the lease's memory is read until then
            self._sources = None
            self._lease.close()
            self._release()

    def __enter__(self) -> Fetched:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(complete=kind is None)

    def __repr__(self) -> str:
        return f"<Fetched: {len(self)} blocks, of which {len(self._missing)} were read>"

    def _check(self) -> None:
        if not self._open:
            raise ClosedError("the fetch has ended: its slots may hold other blocks")

    def _queue(self, layers: int) -> None:
        """Queues the copies of the first layers that are not queued yet."""
        if self._sources is None:
            self._sources = [self._parts(block) for block in self._missing]
        wanted = list(self._pages.values())[len(self._events) : layers]
        for pages in wanted:
            with self._lane.on():
                for block, parts in zip(self._missing, self._sources, strict=True):
                    for page in pages:
                        _copy(self._bodies[self._rows[block]], parts, page.offset, page.end)
            self._events.append(self._lane.event())
        if wanted and len(self._events) == len(self._pages):
            self._keep(self._events[-1])

    def _parts(self, block: int) -> list[torch.Tensor]:
        """The pieces that a body is stored in, without a copy; only read."""
        return [from_dlpack(part, copy=False) for part in self._lease.parts(block)]


def _copy(to: torch.Tensor, parts: list[torch.Tensor], start: int, end: int) -> None:
    """Copies bytes start to end of a body that is stored in parts."""
    at = 0
    for part in parts:
        low, high = max(start, at), min(end, at + len(part))
        if low < high:
            to[low:high].copy_(part[low - at : high - at], non_blocking=True)
        at += len(part)
