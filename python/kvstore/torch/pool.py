"""A pool of blocks on the device: what it holds is not read from the store again.

    with DevicePool(store, ns, slots=4096) as pool:
        with pool.fetch(token_ids) as fetched:
            for layer, pages in fetched.layers():   # the next layers are on their way meanwhile
                attend(layer, pages)

On CUDA the copies run on a stream of their own; that branch has not been run on a GPU yet. They
overlap with computation where the host tier is pinned: see kvstore.torch.pinned. torch reads the
leased views themselves, so in a private arena others read these objects from disk until the fetch
ends (see kvstore.View); a store that several readers share is better opened with arena="shared".
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING

import torch

from kvstore import ClosedError, InvalidArgument, Namespace, Plan, Store
from kvstore.torch.fetched import Fetched, pages_by_layer
from kvstore.torch.lane import Lane

if TYPE_CHECKING:
    from kvstore.types import ExtraKeys, TokenIds

__all__ = ["DevicePool"]

#: Bytes of a block key (Plan.keys).
KEY = 32
#: Slots begin at multiples of this: what CUDA gives its own allocations.
ALIGNMENT = 256


class DevicePool:
    """Bodies of blocks in slots on a device, the least recently used ones first to go.

    slots is the number of bodies that it holds, device where ("cuda" if there is one, else "cpu").
    worker is its id among the workers of `store.mirror`, 0 to 254: the pool joins under it, marks
    what it holds and drops its marks when it closes; another worker that joins under this id takes
    it for lost. ahead is how many layers `Fetched.layers` queues before they are asked for.

    `bodies` is the pool itself: uint8 [slots, body_bytes]. Threads may share a pool.
    """

    def __init__(
        self,
        store: Store,
        ns: Namespace,
        slots: int,
        device: torch.device | str | None = None,
        *,
        worker: int = 0,
        ahead: int = 2,
    ) -> None:
        body = ns.layout.body_bytes
        if body == 0:
            raise InvalidArgument(f"ns: layout {ns.layout.name} has no bodies to keep on a device")
        if ahead < 0:
            raise InvalidArgument(f"ahead is {ahead}: it takes a number of layers from 0")
        if slots < 1:
            raise InvalidArgument(f"slots is {slots}: it takes a number of bodies from 1")
        chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device is None else device
        stride = -(-body // ALIGNMENT) * ALIGNMENT
        memory = torch.empty((slots, stride), dtype=torch.uint8, device=chosen)
        self.bodies = memory[:, :body]
        self._worker = store.mirror.join(worker, slots)
        self._store, self._ns, self._ahead = store, ns, ahead
        self._pages = pages_by_layer(ns.layout)
        self._lane = Lane(self.bodies.device)
        self._lock = threading.Lock()
        #: Slot of each block that is whole, least recently used first.
        self._blocks: OrderedDict[bytes, int] = OrderedDict()
        self._free = list(range(slots))[::-1]
        self._pins = [0] * slots
        #: Per slot, what ends when its bytes are there, and when nobody computes with them.
        self._there: list[torch.cuda.Event | None] = [None] * slots
        self._read: list[torch.cuda.Event | None] = [None] * slots
        self._why_closed: str | None = None

    def fetch(
        self,
        token_ids: TokenIds,
        extra_keys: ExtraKeys | None = None,
        *,
        allow_approximate: bool = False,
    ) -> Fetched:
        """The bodies of a prompt's plan on the device: a context manager.

        Blocks in the pool are taken from there, the rest is leased from the store. The answer is a
        shorter prefix where slots in use leave no room for all of it.
        """
        with self._lock:
            self._check()
            plan = self._match(token_ids, extra_keys, allow_approximate)
            keys, slots, missing = self._reserve(plan)
        try:
            lease = self._ns.lease(plan)
        except BaseException:
            self._release(keys, slots)
            raise
        # What could not be read after all needs no slots.
        got = lease.plan.bodies[1]
        self._release(keys[got:], slots[got:])
        keys, slots, missing = keys[:got], slots[:got], missing[:got]
        read = [block for block, is_missing in enumerate(missing) if is_missing]
        for block in read:
            self._lane.hold(self._read[slots[block]])
        there = {
            self._there[slot]
            for slot, is_missing in zip(slots, missing, strict=True)
            if not is_missing
        }
        new = [(keys[block], slots[block]) for block in read]
        return Fetched(
            lease,
            self.bodies,
            self._lane,
            slots,
            read,
            self._pages,
            self._ahead,
            [event for event in there if event is not None],
            lambda last: self._keep(new, last),
            lambda: self._release(keys, slots),
        )

    def close(self) -> None:
        """Drops the marks; nothing is fetched any more. A second call does nothing."""
        with self._lock:
            if self._why_closed is None:
                self._why_closed = "the pool is closed: make another one"
        with suppress(ClosedError):  # with the store its mirror has gone
            self._store.mirror.drop_worker(self._worker)

    def __enter__(self) -> DevicePool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Blocks in the pool."""
        return len(self._blocks)

    def __repr__(self) -> str:
        slots, device = self.bodies.shape[0], self.bodies.device
        return f"<DevicePool: {len(self)} blocks in {slots} slots on {device}>"

    def _check(self) -> None:
        if self._why_closed is not None:
            raise ClosedError(self._why_closed)

    def _lose(self) -> None:
        """The marks are gone: whatever is held, the store knows nothing of it."""
        self._why_closed = f"worker {self._worker.id} has been replaced: make another pool"

    def _match(self, token_ids: TokenIds, extra_keys: ExtraKeys | None, approximate: bool) -> Plan:
        """A plan for whose blocks there are slots."""
        plan = self._ns.match(token_ids, extra_keys, approximate, worker=self._worker)
        fits = self._fitting(plan)
        while fits < plan.bodies[1]:
            tokens = torch.as_tensor(token_ids)[: fits * self._ns.block_tokens + 1].tolist()
            within = {b: keys for b, keys in (extra_keys or {}).items() if b < fits}
            plan = self._ns.match(tokens, within, approximate, worker=self._worker)
            fits = self._fitting(plan)
        return plan

    def _fitting(self, plan: Plan) -> int:
        """How many of a plan's first blocks have a slot, or can be given one."""
        answers = list(plan.blocks)[: plan.bodies[1]]
        unpinned = sum(pins == 0 for pins in self._pins)
        used = 0
        for block, (key, answer) in enumerate(zip(_keys(plan), answers, strict=False)):
            # A block of the pool takes its slot away from those that may be evicted for the rest.
            used += answer != "mirror" or self._pins[self._blocks[key]] == 0
            if used > unpinned:
                return block
        return len(answers)

    def _reserve(self, plan: Plan) -> tuple[list[bytes], list[int], list[bool]]:
        """Keys and pinned slots of a plan's blocks, and which of them are to be read."""
        end = plan.bodies[1]
        keys = _keys(plan)[:end]
        missing = [answer != "mirror" for answer in list(plan.blocks)[:end]]
        if any(new and key in self._blocks for key, new in zip(keys, missing, strict=True)):
            self._lose()
            self._check()
        slots = [-1 if new else self._blocks[key] for key, new in zip(keys, missing, strict=True)]
        for slot in slots:
            if slot >= 0:
                self._pins[slot] += 1
        return keys, [self._take() if slot < 0 else slot for slot in slots], missing

    def _take(self) -> int:
        """A slot of one's own, pinned: a free one, else that of the oldest block not in use."""
        if not self._free:
            key = next(key for key, slot in self._blocks.items() if self._pins[slot] == 0)
            # First the mark: it never says that the pool holds what it has given up.
            self._store.mirror.remove(key, self._worker)
            self._free.append(self._blocks.pop(key))
        slot = self._free.pop()
        self._pins[slot] += 1
        return slot

    def _keep(self, new: list[tuple[bytes, int]], last: torch.cuda.Event | None) -> None:
        """Blocks that were read are in the pool: on the device once `last` is over."""
        with self._lock:
            if self._why_closed is not None:
                return
            # What another fetch brought meanwhile is there already.
            kept = [(key, slot) for key, slot in new if key not in self._blocks]
            for key, slot in kept:
                self._blocks[key] = slot
                self._there[slot] = last
            keys, slots = b"".join(key for key, _ in kept), [slot for _, slot in kept]
            try:
                marked = self._store.mirror.insert(keys, slots, self._worker)
            except ClosedError:
                return  # the store is closed, and its mirror gone
            if marked < len(kept):
                self._lose()

    def _release(self, keys: list[bytes], slots: list[int]) -> None:
        """Ends the use of slots: those of blocks in the pool stay, the others are free."""
        computed = self._lane.computed()
        with self._lock:
            # From the tail to the head, so that a chain loses its last block first.
            for key, slot in reversed(list(zip(keys, slots, strict=True))):
                self._pins[slot] -= 1
                self._read[slot] = computed
                if self._blocks.get(key) == slot:
                    self._blocks.move_to_end(key)
                else:
                    self._free.append(slot)


def _keys(plan: Plan) -> list[bytes]:
    joined = plan.keys
    return [joined[at : at + KEY] for at in range(0, len(joined), KEY)]
