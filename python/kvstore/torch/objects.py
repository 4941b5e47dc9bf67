"""Bodies, windows and checkpoints made from the rows of a live cache, and back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from kvstore._core import Group, Layout
from kvstore.torch.records import Records, records_of

__all__ = ["Fields", "Objects", "Place"]

#: The rows of one group and owner layer: one tensor [rows, ...] per field, views allowed.
Fields = list[torch.Tensor]
#: A group's name and an owner layer.
Place = tuple[str, int]
Area = Literal["body", "window", "checkpoint"]


@dataclass(frozen=True, slots=True)
class _Page:
    """One group's page of one owner layer in an object."""

    place: Place
    group: Group
    #: Bytes from the object's start.
    offset: int
    nbytes: int
    #: Rows of a page.
    rows: int
    records: Records


class Objects:
    """The pages of a layout's objects, for rows like those of a live cache.

    ``like`` gives the fields of a group and layer: their types and the shapes of their rows.
    """

    def __init__(self, layout: Layout, like: Callable[[Group, int], Fields]) -> None:
        self.layout = layout
        self._like: dict[Place, Fields] = {}
        self._pages: dict[str, list[_Page]] = {"body": [], "window": [], "checkpoint": []}
        for group in layout.groups:
            for layer in group.layers:
                found = layout.page(group.name, layer)
                if found is None or found[2] == 0:
                    continue  # nothing of it is left at a block end
                area, offset, nbytes = found
                fields = like(group, layer)
                place = (group.name, layer)
                self._like[place] = fields
                rows = nbytes // group.record_bytes
                page = _Page(place, group, offset, nbytes, rows, records_of(group, fields))
                self._pages[area].append(page)
        self._bytes = {
            "body": layout.body_bytes,
            "window": layout.window_bytes,
            "checkpoint": layout.checkpoint_bytes,
        }
        self._reach = {group.name: (group.window or 1) - 1 for group in layout.groups}

    def bodies(self, rows: Mapping[Place, Fields], first: int, end: int) -> torch.Tensor:
        """Bodies of the blocks ``first .. end``, uint8 [blocks, body_bytes] on the CPU, of a cache
        whose entries are all here from the first one on."""
        out = torch.zeros(end - first, self._bytes["body"], dtype=torch.uint8)
        for page, pages in self._each("body", out):
            cut = slice(first * page.rows, end * page.rows)
            page.records.write(pages, [field[cut] for field in rows[page.place]], page.rows)
        return out

    def window(self, rows: Mapping[Place, Fields], length: int, block: int) -> torch.Tensor | None:
        """The window of a block, uint8 [window_bytes], of a cache of ``length`` tokens that keeps
        its last rows; None when rows of it that a resume point can need are no longer there.

        Rows that no block end from this block's on reaches back to are zero, so that equal tokens
        give equal bytes however many rows a cache keeps.
        """
        tokens = self.layout.block_tokens
        out = torch.zeros(1, self._bytes["window"], dtype=torch.uint8)
        for page, pages in self._each("window", out):
            fields = rows[page.place]
            kept_from = length - fields[0].shape[0]
            start = max(block * tokens, (block + 1) * tokens - self._reach[page.group.name])
            if start < kept_from:
                return None
            end = (block + 1) * tokens - kept_from
            live = [field[start - kept_from : end] for field in fields]
            padded = [field.new_zeros(tokens, *field.shape[1:]) for field in live]
            for whole, part in zip(padded, live, strict=True):
                whole[tokens - part.shape[0] :] = part
            page.records.write(pages, padded, page.rows)
        return out[0]

    def checkpoint(self, rows: Mapping[Place, Fields]) -> torch.Tensor:
        """The checkpoint of a cache that ends with a block: uint8 [checkpoint_bytes], a copy."""
        out = torch.zeros(1, self._bytes["checkpoint"], dtype=torch.uint8)
        for page, pages in self._each("checkpoint", out):
            page.records.write(pages, rows[page.place], page.rows)
        return out[0]

    def restored(
        self, bodies: torch.Tensor, windows: torch.Tensor, checkpoint: torch.Tensor, length: int
    ) -> dict[Place, Fields]:
        """The rows of a cache of ``length`` tokens from its objects: uint8 [blocks, bytes] each,
        windows and checkpoint with as many as were read, 0 or more. Windows have their last
        ``min(length, window - 1)`` rows. The tensors own their memory."""
        rows: dict[Place, Fields] = {}
        objects: dict[str, torch.Tensor] = {
            "body": bodies,
            "window": windows,
            "checkpoint": checkpoint,
        }
        for area, data in objects.items():
            if data.shape[0] == 0:
                continue
            for page, pages in self._each(area, data):
                fields = page.records.read(pages, page.rows, self._like[page.place])
                if area == "window":
                    count = min(length, self._reach[page.group.name])
                    fields = [field[field.shape[0] - count :].clone() for field in fields]
                rows[page.place] = fields
        return rows

    def like(self, group: Group, layer: int) -> Fields:
        """Fields of a group and layer whose types and row shapes are those of the live cache."""
        return self._like[group.name, layer]

    def places(self, kind: str) -> list[tuple[Group, int]]:
        """Groups of one kind and their owner layers, as far as objects keep anything of them."""
        pages = itertools.chain.from_iterable(self._pages.values())
        return [(page.group, page.place[1]) for page in pages if page.group.kind == kind]

    def _each(self, area: str, data: torch.Tensor) -> Iterator[tuple[_Page, torch.Tensor]]:
        """The pages of an area, and where they lie in objects [blocks, bytes]."""
        for page in self._pages[area]:
            yield page, data[:, page.offset : page.offset + page.nbytes]
