"""Between the numbers of a live cache and the records of a layout."""

from __future__ import annotations

import math
from typing import Protocol

import torch

from kvstore import codec
from kvstore._core import Group
from kvstore.torch.errors import Unsupported

__all__ = ["Records", "records_of", "width"]

#: A layout's record formats, and the codec's names of them.
_PACKED = {
    "fp8_ds_mla/fp32-scale": "fp8_ds_mla.raw",
    "fp8_ds_mla/pow2-scale": "fp8_ds_mla",
    "nvfp4_ds_mla": "nvfp4_ds_mla",
    "nvfp4-bf16-rope": "nvfp4_mla_416",
    "v4-fp8": "v4_main",
    "v41-nvfp4": "v41_main",
    "v41-mxfp8": "v41_window",
    "index-fp8/fp32-scale": "index_fp8",
    "index-fp8/pow2-scale": "index_fp8.ue8m0",
    "index-mxfp4": "index_fp4",
}
#: Formats of one number after the other.
_PLAIN = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.float8_e4m3fn,
}


class Records(Protocol):
    """How rows become the bytes of a page, and back. A page is ``n`` entries of one layer."""

    def write(self, pages: torch.Tensor, fields: list[torch.Tensor], n: int) -> None:
        """Fills pages, uint8 [blocks, bytes], from fields of rows [blocks * n, ...]."""

    def read(self, pages: torch.Tensor, n: int, like: list[torch.Tensor]) -> list[torch.Tensor]:
        """Rows [blocks * n, ...] of each field, of the types and row shapes of ``like``."""


def width(field: torch.Tensor) -> int:
    """Numbers in one row of a field."""
    return math.prod(field.shape[1:])


def _octets(rows: torch.Tensor) -> torch.Tensor:
    """Rows as bytes, uint8 [n, bytes]."""
    flat = rows.reshape(rows.shape[0], width(rows)).contiguous()
    return flat if flat.dtype == torch.uint8 else flat.view(torch.uint8)


def _rows_of(plane: torch.Tensor, n: int, size: int) -> torch.Tensor:
    """The rows of a plane: uint8 [blocks, n * size] as [blocks, n, size], a view."""
    stride = plane.stride(0)
    return plane.as_strided((plane.shape[0], n, size), (stride, size, 1), plane.storage_offset())


class AsTheyAre:
    """The live bytes: fields side by side in a record, or one to a plane."""

    def __init__(self, planes: list[int]) -> None:
        self._planes = planes

    def _places(self, pages: torch.Tensor, widths: list[int], n: int) -> list[torch.Tensor]:
        """Where each field of ``n`` rows lies in the pages: uint8 [blocks, n, width] views."""
        if len(self._planes) == 1:
            record = _rows_of(pages, n, self._planes[0])
            return list(torch.split(record, widths, dim=2))
        planes = torch.split(pages, [n * size for size in self._planes], dim=1)
        sizes = zip(planes, self._planes, strict=True)
        return [_rows_of(plane, n, size) for plane, size in sizes]

    def write(self, pages: torch.Tensor, fields: list[torch.Tensor], n: int) -> None:
        rows = [_octets(field) for field in fields]
        places = self._places(pages, [row.shape[1] for row in rows], n)
        for place, row in zip(places, rows, strict=True):
            place.copy_(row.view(place.shape))

    def read(self, pages: torch.Tensor, n: int, like: list[torch.Tensor]) -> list[torch.Tensor]:
        widths = [width(field) * field.element_size() for field in like]
        rows = []
        for place, field in zip(self._places(pages, widths, n), like, strict=True):
            flat = place.reshape(-1, place.shape[2]).contiguous()
            typed = flat if field.dtype == torch.uint8 else flat.view(field.dtype)
            rows.append(typed.reshape(-1, *field.shape[1:]))
        return rows


class Packed:
    """Engine records that the codec makes of bf16 rows: fewer bits, when a form asks for them."""

    def __init__(self, form: str) -> None:
        self._form = form

    def write(self, pages: torch.Tensor, fields: list[torch.Tensor], n: int) -> None:
        row = torch.cat([field.reshape(field.shape[0], width(field)) for field in fields], dim=1)
        packed = codec.pack(row.cpu().contiguous(), self._form, entries=n)
        pages.copy_(torch.from_numpy(packed)[:, : pages.shape[1]])

    def read(self, pages: torch.Tensor, n: int, like: list[torch.Tensor]) -> list[torch.Tensor]:
        size = codec.page_bytes(self._form, n)  # some pages are padded; a layout's are not
        padded = torch.zeros(pages.shape[0], size, dtype=torch.uint8)
        padded[:, : pages.shape[1]] = pages
        count = pages.shape[0] * n
        bits = codec.unpack(padded, self._form, entries=n, count=count)
        row = torch.from_numpy(bits).view(torch.bfloat16)
        split = torch.split(row, [width(field) for field in like], dim=1)
        return [
            part.to(field.dtype).reshape(-1, *field.shape[1:])
            for part, field in zip(split, like, strict=True)
        ]


class Cast:
    """Numbers of other types than the live ones: "fp8" is E4M3 without a scale, as engines write it
    with ``kv_cache_dtype=fp8`` and scales of 1; float32 holds a bf16 number exactly."""

    def __init__(self, planes: list[int], dtypes: list[torch.dtype]) -> None:
        self._bytes = AsTheyAre(planes)
        self._dtypes = dtypes

    def write(self, pages: torch.Tensor, fields: list[torch.Tensor], n: int) -> None:
        cast = []
        for field, dtype in zip(fields, self._dtypes, strict=True):
            top = torch.finfo(dtype).max
            fits = field.dtype.itemsize <= dtype.itemsize
            cast.append((field if fits else field.clamp(-top, top)).to(dtype))
        self._bytes.write(pages, cast, n)

    def read(self, pages: torch.Tensor, n: int, like: list[torch.Tensor]) -> list[torch.Tensor]:
        cast = [
            torch.empty(field.shape, dtype=dtype)
            for field, dtype in zip(like, self._dtypes, strict=True)
        ]
        rows = self._bytes.read(pages, n, cast)
        return [row.to(field.dtype) for row, field in zip(rows, like, strict=True)]


def records_of(group: Group, like: list[torch.Tensor]) -> Records:
    """How a group of a layout keeps rows like these, one tensor [n, ...] per field."""
    types = {field.dtype for field in like}
    sizes = [width(field) for field in like]
    live = sum(width(field) * field.element_size() for field in like)
    plain = _PLAIN.get(group.format)
    if plain is None and live == group.record_bytes:
        return AsTheyAre(group.planes)
    if plain is not None and group.record_bytes == sum(sizes) * plain.itemsize:
        if types == {plain}:
            return AsTheyAre(group.planes)
        return Cast(group.planes, [plain] * len(like))
    if len(group.planes) == len(sizes) and all(
        plane in (width(field) * field.element_size(), size * 4)
        for plane, size, field in zip(group.planes, sizes, like, strict=True)
    ):
        dtypes = [
            torch.float32 if plane == size * 4 else field.dtype
            for plane, size, field in zip(group.planes, sizes, like, strict=True)
        ]
        return Cast(group.planes, dtypes)
    packed = {known.name: known for known in codec.record_formats()}
    form = packed.get(_PACKED.get(group.format, ""))
    if form is not None and form.dim == sum(sizes) and types == {torch.bfloat16}:
        return Packed(form.name)
    raise Unsupported(
        f"group {group.name!r} keeps {group.format} records of {group.record_bytes} bytes; the "
        f"live rows are {sum(sizes)} numbers of {', '.join(sorted(map(str, types)))}, {live} bytes"
    )
