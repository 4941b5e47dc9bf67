"""Rows of a cache as bytes: how one group's float rows become the planes that a page holds.

A *row* is what one layer keeps of one token or of one pooled entry. In the plain precisions it is a
tensor of bf16 or float32; in native precision it is the packed record that engines keep
(`kvstore.codec` writes it, bit for bit). A record of split-plane pages, whose page holds all values
first and all scales after, has two planes: for n rows uint8 [n, data bytes] and [n, scale bytes].

Attention never reads anything else: what it computes with is `unpack(pack(row))`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from kvstore import codec
from kvstore.layouts import Group

__all__ = ["PackedRows", "PlainRows", "Planes", "RowFormat", "row_format"]

Planes = tuple[Tensor, ...]
"""One tensor per plane of the group, each [n, ...]: row i of each belongs to entry i."""

Widths = tuple[tuple[int, torch.dtype], ...]


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Numbers as they are: one plane [n, elements] of `dtype`."""

    elements: int
    dtype: torch.dtype

    @property
    def widths(self) -> Widths:
        return ((self.elements, self.dtype),)

    def pack(self, rows: Tensor) -> Planes:
        return (rows.to(self.dtype, copy=True).contiguous(),)

    def unpack(self, planes: Planes) -> Tensor:
        # Always a copy: a row may be a view of foreign memory, and the order of additions in a
        # matrix product may depend on where its operands lie.
        return planes[0].to(torch.float32, copy=True)


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Packed records: uint8 planes [n, bytes] of a record format of `kvstore.codec`."""

    elements: int
    format: str
    planes: tuple[int, ...]

    @property
    def widths(self) -> Widths:
        return tuple((size, torch.uint8) for size in self.planes)

    def pack(self, rows: Tensor) -> Planes:
        n = len(rows)
        # One page of n entries: each plane of it is a run of n rows, with padding behind the last.
        page = torch.empty(1, codec.page_bytes(self.format, n) if n else 0, dtype=torch.uint8)
        if n:
            codec.pack(rows.to(torch.bfloat16), self.format, entries=n, out=page)
        ends = [n * end for end in accumulate(self.planes)]
        return tuple(
            page[0, end - n * size : end].view(n, size)
            for end, size in zip(ends, self.planes, strict=True)
        )

    def unpack(self, planes: Planes) -> Tensor:
        n = len(planes[0])
        rows = torch.empty(n, self.elements, dtype=torch.bfloat16)
        if n:
            page = torch.zeros(codec.page_bytes(self.format, n), dtype=torch.uint8)
            records = torch.cat([plane.flatten() for plane in planes])
            page[: len(records)] = records
            codec.unpack(page, self.format, entries=n, count=n, out=rows)
        return rows.float()


RowFormat = PlainRows | PackedRows
"""Both have `elements`, the numbers of a row, and

    widths           columns and dtype of each plane
    pack(rows)       float32 [n, elements] to planes of n rows
    unpack(planes)   planes of n rows to float32 [n, elements], in memory of its own
"""

_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}

#: The layout's record formats, and the codec's formats with the same bytes per plane.
_RECORDS = {
    "fp8_ds_mla/pow2-scale": "fp8_ds_mla",
    "index-fp8/pow2-scale": "index_fp8",
    "v4-fp8": "v4_main",
    "index-mxfp4": "index_fp4",
    "v41-nvfp4": "v41_main",
    "v41-mxfp8": "v41_window",
}


def row_format(group: Group) -> RowFormat:
    """The format of a group's rows. ValueError for a record that no model here writes."""
    if group.format in _DTYPES:
        return PlainRows(group.elements, _DTYPES[group.format])
    if group.format not in _RECORDS:
        known = ", ".join((*_DTYPES, *_RECORDS))
        raise ValueError(f"group {group.name!r}: record {group.format!r}, one of {known} wanted")
    return PackedRows(group.elements, _RECORDS[group.format], tuple(group.planes))
