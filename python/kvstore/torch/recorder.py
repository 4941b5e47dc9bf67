"""Follows what a model computes, and stores it block by block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import kvstore
from kvstore.errors import ClosedError
from kvstore.torch.binding import Binding
from kvstore.torch.objects import Fields, Place
from kvstore.torch.policy import Kept, Policy

__all__ = ["Put", "Recorder", "Saved"]

#: `Namespace.put` with what one prompt has in common filled in.
Put = Callable[..., kvstore.Batch]


@dataclass(slots=True)
class Saved:
    """What was stored of a prompt and its output."""

    #: Batches of `Namespace.put`, in order.
    batches: list[kvstore.Batch] = field(default_factory=list)
    #: Tokens of the cache up to its last whole block.
    tokens: int = 0
    #: Block ends whose window or state the policy asked for and that could not be stored, and why.
    skipped: dict[int, str] = field(default_factory=dict)
    #: Why nothing more was stored from some call on; None where everything was followed.
    stopped: str | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until every object has its answer, up to ``timeout`` seconds each batch."""
        answered = [batch.wait(timeout) for batch in self.batches]
        return all(answered)

    def count(self, status: str) -> int:
        """Objects with this status ("stored", "exists", "rejected", ...)."""
        return sum(batch.status.count(status) for batch in self.batches)


class Recorder:
    """One cache that grows, token by token known, and the objects made of it.

    Objects are made when a block ends: windows and states are gone later. They are stored when the
    policy asks for them; those that only the end of the output can ask for are kept until then.
    """

    def __init__(
        self,
        binding: Binding,
        policy: Policy,
        put: Put,
        cache: Any,
        ids: Sequence[int],
        *,
        length: int,
        prompt: int,
    ) -> None:
        self.cache = cache
        self.saved = Saved(tokens=length)
        self._binding, self._policy, self._put = binding, policy, put
        self._layout = binding.layout
        self._block = self._layout.block_tokens
        #: Tokens in the cache.
        self._ids = list(ids[:length])
        self._prompt = prompt
        self._start = length
        #: Blocks that are stored, or were found stored.
        self._done = length // self._block
        self._seen = length
        self._windows: dict[int, torch.Tensor] = {}
        self._checkpoints: dict[int, Any] = {}
        self._put_windows: set[int] = set()
        self._put_checkpoints: set[int] = set()
        self._row, self._pad = 0, 0
        self._running = False

    @property
    def ids(self) -> list[int]:
        """The tokens whose rows the cache holds."""
        return self._ids

    def moved(self, cache: Any, row: int, pad: int) -> None:
        """The same tokens are in this row of a batch's cache now, behind ``pad`` others."""
        self.cache, self._row, self._pad = cache, row, pad

    def rolled_back(self, length: int) -> None:
        """The cache was cut to its first ``length`` tokens: assisted decoding took some back."""
        if length >= len(self._ids):
            return
        del self._ids[length:]
        self._seen = min(self._seen, length)
        whole = length // self._block
        self._done = min(self._done, whole)
        self._windows = {b: w for b, w in self._windows.items() if b < whole}
        self._checkpoints = {n: c for n, c in self._checkpoints.items() if n <= length}
        self._put_windows = {b for b in self._put_windows if b < whole}
        self._put_checkpoints = {n for n in self._put_checkpoints if n <= length}

    def stop(self, reason: str) -> None:
        """Nothing that the cache gets from now on is stored."""
        self.saved.stopped = self.saved.stopped or reason

    def begin(self) -> None:
        """A call of the model begins; `computed` ends it. Where the one before failed midway, the
        cache may hold rows of it."""
        if self._running:
            self.stop("a call of the model failed midway: what the cache holds is not known")
        self._running = True

    def counted(self) -> None:
        """Follows the length of the cache: shorter when assisted decoding took tokens back, longer
        when a call was not seen, whose tokens are not known."""
        columns = self._binding.length(self.cache)
        if columns is None or self.saved.stopped:
            return
        if columns > len(self._ids) + self._pad:
            self.stop("the cache grew in calls that were not those of the model itself")
        self.rolled_back(columns - self._pad)

    def computed(self, ids: Sequence[int]) -> None:
        """These tokens are in the cache now. Makes and stores the objects of blocks that ended."""
        self._running = False
        if self.saved.stopped:
            return
        longest = self._binding.longest
        if longest is not None and len(self._ids) + len(ids) > longest:
            self.stop(f"rows of more than {longest} tokens depend on the length of the prompt")
            return
        self._ids.extend(ids)
        length, block = len(self._ids), self._block
        first = self._seen // block
        self._seen = length
        if length // block == first:
            return
        self._take_windows(first, length)
        if self._layout.checkpoint_bytes and length % block == 0:
            self._checkpoints[length] = self._checkpoint()
        self._store(over=False)

    def finish(self) -> Saved:
        """Stores what the end of the output asks for."""
        self._store(over=True)
        return self.saved

    def _checkpoint(self) -> Any:
        """The state after all tokens so far."""
        return self._binding.objects.checkpoint(self._rows("state"))

    def _rows(self, kind: str) -> dict[Place, Fields]:
        rows = self._binding.rows(self.cache, kind, self._row)
        if kind == "entries" and self._pad:
            return {place: [f[self._pad :] for f in fields] for place, fields in rows.items()}
        return rows

    def _take_windows(self, first: int, length: int) -> None:
        if not self._layout.window_bytes or self._policy.windows == "none":
            return
        rows = self._rows("window")
        for block in range(first, length // self._block):
            window = self._binding.objects.window(rows, length, block)
            if window is not None:
                self._windows[block] = window

    def _store(self, *, over: bool) -> None:
        whole = len(self._ids) // self._block
        end = whole * self._block
        kept = self._policy.kept(self._layout, self._start, end, self._prompt, over=over)
        windows = {b: self._windows[b] for b in kept.windows & self._windows.keys()}
        checkpoints = {n: self._checkpoints[n] for n in kept.checkpoints & self._checkpoints.keys()}
        windows = {b: w for b, w in windows.items() if b not in self._put_windows}
        checkpoints = {n: c for n, c in checkpoints.items() if n not in self._put_checkpoints}
        bodies = None
        if self._layout.body_bytes and whole > self._done:
            rows = self._rows("entries")
            bodies = self._binding.objects.bodies(rows, self._done, whole)
        if bodies is not None or windows or checkpoints:
            try:
                self._put_objects(end, bodies, windows, checkpoints)
            except ClosedError as closed:  # the model's output is the caller's all the same
                self.stop(str(closed))
                return
        self._put_windows |= windows.keys()
        self._put_checkpoints |= checkpoints.keys()
        self._done = whole
        self.saved.tokens = end
        self._note_skipped(kept)
        self._forget(whole)

    def _put_objects(
        self,
        end: int,
        bodies: torch.Tensor | None,
        windows: dict[int, torch.Tensor],
        checkpoints: dict[int, Any],
    ) -> None:
        batch = self._put(
            np.asarray(self._ids[:end], np.int64),
            None if bodies is None else bodies.numpy(),
            first_block=self._done if bodies is not None else 0,
            windows={b: w.numpy() for b, w in windows.items()} or None,
            checkpoints={n: c.numpy() for n, c in checkpoints.items()} or None,
        )
        self.saved.batches.append(batch)

    def _note_skipped(self, kept: Kept) -> None:
        if self._layout.window_bytes:
            found = self._start // self._block  # windows before are where the prefix came from
            for block in kept.windows - self._put_windows:
                if block >= found:
                    self.saved.skipped[(block + 1) * self._block] = (
                        "rows of this block's window had left the cache: save while blocks end, "
                        "as a session does"
                    )
        if self._layout.checkpoint_bytes:
            for point in kept.checkpoints - self._put_checkpoints:
                self.saved.skipped[point] = (
                    "no chunk ended there: a state is there only while the cache ends with it"
                )

    def _forget(self, whole: int) -> None:
        """Drops what no later point can ask for."""
        reach = -(-self._layout.max_window // self._block) + 1
        self._windows = {b: w for b, w in self._windows.items() if b >= whole - reach}
        self._checkpoints = {n: c for n, c in self._checkpoints.items() if n >= whole * self._block}
