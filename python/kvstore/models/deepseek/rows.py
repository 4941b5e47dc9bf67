"""What a model keeps of the tokens it has seen: its rows, and how a pass adds to them.

    cache.length                        tokens seen
    cache.rows[group, owner layer]      planes, one tensor per plane of the layout's group

    entries groups   n = length // ratio rows, from the first token on
    window groups    the last min(length, window - 1) rows; the last one is of token length - 1
    state groups     rows that are valid at `length` only; often none where blocks end

Nothing else is carried from one pass to the next, so a cache made of copies of these rows continues
with the same bits as the one they were copied from. No row is ever written in place: a pass makes
new tensors, and views of the old ones stay what they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor

from kvstore.layouts import Group, Layout
from kvstore.models.deepseek.records import Planes, row_format

__all__ = ["Key", "RowCache", "Step"]

Key = tuple[str, int]
"""(group name, owner layer)."""


class RowCache:
    """The rows of one sequence, under a layout whose groups say what they are."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.groups: Mapping[str, Group] = {group.name: group for group in layout.groups}
        self.formats = {group.name: row_format(group) for group in layout.groups}
        self.length = 0
        self.rows: dict[Key, Planes] = {
            (group.name, layer): self._none(group.name)
            for group in layout.groups
            for layer in group.layers
        }

    def copy(self) -> Self:
        """A cache of copies: the same rows in memory of their own."""
        other = type(self)(self.layout)
        other.length = self.length
        for key, planes in self.rows.items():
            other.rows[key] = tuple(plane.clone() for plane in planes)
        return other

    def only(self, *kinds: str) -> RowCache:
        """A cache with the rows of groups of these kinds: replay begins with the entries.

        The planes are shared; they are never written.
        """
        other = RowCache(self.layout)
        other.length = self.length
        for (name, layer), planes in self.rows.items():
            if self.groups[name].kind in kinds:
                other.rows[name, layer] = planes
        return other

    def nbytes(self, kind: str) -> int:
        """Bytes of all rows of groups of one kind: "entries", "window" or "state"."""
        return sum(
            plane.numel() * plane.element_size()
            for (name, _), planes in self.rows.items()
            if self.groups[name].kind == kind
            for plane in planes
        )

    def planes(self, group: str, layer: int) -> Planes:
        """The planes of a group and owner layer in the group's own type, one row a line.

        They may have been put as bytes, uint8 of any shape. ValueError for parts of rows.
        """
        given = self.rows.get((group, layer))
        if given is None:
            return self._none(group)
        widths = self.formats[group].widths
        flat = [plane.contiguous().view(torch.uint8).flatten() for plane in given]
        sizes = [width * dtype.itemsize for width, dtype in widths]
        lengths = [len(plane) for plane in flat]
        n = lengths[0] // sizes[0] if lengths else 0
        if lengths != [n * size for size in sizes]:
            raise ValueError(
                f"cache: planes of {lengths} bytes in group {group!r}, layer {layer}, "
                f"rows of {sizes} wanted"
            )
        return tuple(
            plane.view(dtype).view(n, width)
            for plane, (width, dtype) in zip(flat, widths, strict=True)
        )

    def read(self, group: str, layer: int) -> Tensor:
        """All rows of a group and owner layer: float32 [n, elements], in memory of its own."""
        return self.formats[group].unpack(self.planes(group, layer))

    def _none(self, group: str) -> Planes:
        """Planes of no rows."""
        widths = self.formats[group].widths
        return tuple(torch.empty(0, width, dtype=dtype) for width, dtype in widths)

    def __repr__(self) -> str:
        form = f"{self.layout.name}, {self.layout.form}"
        return f"<RowCache {form}: {self.length} tokens, {self.nbytes('entries')} B of entries>"


class Step:
    """One pass over `tokens` tokens from `start` on: reads rows and collects new ones.

    In a replay the entries of these tokens are stored already: they are read and never written,
    while windows and states are.
    """

    def __init__(self, cache: RowCache, start: int, tokens: int, *, replay: bool = False) -> None:
        self.cache = cache
        self.start = start
        self.tokens = tokens
        self.replay = replay
        self.gap = False
        """Whether `start` does not follow on the window rows that the cache holds."""
        self.new: dict[Key, Planes] = {}

    @property
    def end(self) -> int:
        """The position behind the last token of the pass."""
        return self.start + self.tokens

    def positions(self) -> Tensor:
        """int64 [tokens]."""
        return torch.arange(self.start, self.end)

    def tail(self, tokens: int) -> Step:
        """The last `tokens` tokens of this pass as a pass of their own, new rows shared."""
        tail = Step(self.cache, max(self.end - tokens, self.start), 0, replay=self.replay)
        tail.tokens = self.end - tail.start
        tail.gap = self.gap or tail.start > self.start
        tail.new = self.new
        return tail

    def entries(self, group: str, layer: int, new: Tensor) -> Tensor:
        """Appends entries, float32 [k, elements]; gives all up to `end`, as they read back.

        In a replay `new` is left aside.
        """
        form = self.cache.formats[group]
        planes, ratio = self.cache.planes(group, layer), self.cache.groups[group].ratio
        self._wanted(group, layer, len(planes[0]), self.cache.length // ratio)
        if self.replay:
            return form.unpack(tuple(plane[: self.end // ratio] for plane in planes))
        planes = tuple(torch.cat(both) for both in zip(planes, form.pack(new), strict=True))
        self.new[group, layer] = planes
        return form.unpack(planes)

    def window(self, group: str, layer: int, new: Tensor) -> Tensor:
        """Appends window rows; gives those that its queries see: float32 [past + k, elements].

        The last of them is the row of token `end - 1`. After a gap the rows before are dropped.
        """
        form = self.cache.formats[group]
        window = self.cache.groups[group].window
        assert window is not None
        made = form.pack(new)
        if not self.gap:
            held = tuple(plane[-(window - 1) :] for plane in self.cache.planes(group, layer))
            if not self.replay:
                self._wanted(group, layer, len(held[0]), min(self.start, window - 1))
            made = tuple(torch.cat(both) for both in zip(held, made, strict=True))
        self.new[group, layer] = tuple(plane[-(window - 1) :].clone() for plane in made)
        return form.unpack(made)

    def state(self, group: str, layer: int) -> Tensor:
        """The rows of a state group at `start`: float32 [n, elements]."""
        return self.cache.read(group, layer)

    def set_state(self, group: str, layer: int, rows: Tensor) -> None:
        """Puts the rows of a state group at `end`: float32 [n, elements]."""
        self.new[group, layer] = self.cache.formats[group].pack(rows)

    def _wanted(self, group: str, layer: int, given: int, wanted: int) -> None:
        if given != wanted:
            raise ValueError(
                f"cache: {given} rows in group {group!r}, layer {layer}, {wanted} wanted at "
                f"{self.cache.length} tokens"
            )

    def commit(self) -> None:
        """Makes the new rows the cache's own."""
        self.cache.rows.update(self.new)
        self.cache.length = max(self.cache.length, self.end)
