"""Records and pages of engines, and the layouts of their scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ._arrays import Array, empty_aligned, numbers, octets
from ._native import native


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """The bytes of one cached entry and the rule of its pages."""

    name: str
    engine: str
    version: str
    note: str
    # bf16 elements of an entry's row.
    dim: int
    record_bytes: int
    # Bytes of an entry in the page's first and second plane; the second is empty for records that
    # can be cut at an entry.
    data_bytes: int
    tail_bytes: int
    # Pages are padded with zeros to a multiple of this.
    page_multiple: int


def record_formats() -> list[RecordFormat]:
    """All record formats, with the engine and version each comes from."""
    return [RecordFormat(**f) for f in native.formats()]


def page_bytes(format: str, entries: int) -> int:
    """Bytes of a page of `entries`."""
    return native.page_bytes(format, entries)


def _dim(format: str) -> int:
    native.page_bytes(format, 1)
    return next(f.dim for f in record_formats() if f.name == format)


def _rows(rows: Any, dim: int) -> tuple[Array, int]:
    array, _ = numbers(rows, "rows", "bf16")
    if array.ndim < 1 or array.shape[-1] != dim:
        raise ValueError(f"rows: shape {array.shape} given, [..., {dim}] wanted")
    return array, array.size // dim


def pack(
    rows: Any,
    format: str,
    *,
    entries: int,
    out: Any = None,
    level: str | None = None,
    threads: int = 0,
) -> npt.NDArray[np.uint8]:
    """Packs bf16 rows [..., dim] into pages of `entries`: uint8 [pages, page bytes].

    What the last page does not fill is zero, so that equal rows give equal bytes.
    """
    array, count = _rows(rows, _dim(format))
    size = page_bytes(format, max(entries, 1))
    shape = (-(-count // max(entries, 1)), size)
    pages = empty_aligned(shape, np.uint8) if out is None else octets(out, "out")
    native.pack(format, array, entries, pages, level, threads)
    return pages


def unpack(
    pages: Any,
    format: str,
    *,
    entries: int,
    count: int,
    out: Any = None,
    level: str | None = None,
    threads: int = 0,
) -> Array:
    """Unpacks the first `count` entries of pages of `entries`: bf16 bits, uint16 [count, dim]."""
    dim = _dim(format)
    rows = empty_aligned((count, dim), np.uint16) if out is None else _rows(out, dim)[0]
    if out is not None and rows.size != count * dim:
        raise ValueError(f"out: {rows.size // dim} rows given, {count} wanted")
    native.unpack(format, octets(pages, "pages"), entries, rows, level, threads)
    return rows


def move(
    pages: Any,
    source: tuple[str, int],
    target: tuple[str, int],
    *,
    count: int,
    out: Any = None,
) -> npt.NDArray[np.uint8]:
    """Moves `count` entries from pages (format, entries) to others without re-encoding."""
    name, entries = target
    size = page_bytes(name, max(entries, 1))
    if out is None:
        out = empty_aligned((-(-count // max(entries, 1)), size), np.uint8)
    moved = octets(out, "out")
    native.move_entries(source, octets(pages, "pages"), target, moved, count)
    return moved


class GqaPage:
    """Pages of keys and values of `tokens` x `heads` x `head_dim`, K side first.

    `preset` is "bf16" or a scheme with scales per row; `order` whether rows run token by token or
    head by head; `scales` whether they stand after the codes of a side, inline after each row, or
    after with V swizzled 4 x 4 (vLLM's NVFP4 on SM100).
    """

    def __init__(
        self,
        preset: str,
        *,
        tokens: int,
        heads: int,
        head_dim: int,
        order: Literal["nhd", "hnd"] = "nhd",
        scales: Literal["after", "inline", "after_v4x4"] = "after",
    ) -> None:
        self._page = native.GqaPage(preset, (tokens, heads, head_dim), order, scales)
        self.shape = (tokens, heads, head_dim)

    @property
    def nbytes(self) -> int:
        """Bytes of a page."""
        return self._page.nbytes

    @property
    def stride(self) -> int:
        """Bytes from one (token, head) row of codes to the next."""
        return self._page.stride

    def pack(
        self,
        keys: Any,
        values: Any,
        *,
        k_scale: float = 1.0,
        v_scale: float = 1.0,
        out: Any = None,
    ) -> npt.NDArray[np.uint8]:
        """Packs bf16 keys and values [tokens, heads, head_dim]."""
        sides = [self._side(x, what) for x, what in ((keys, "keys"), (values, "values"))]
        page = np.empty(self.nbytes, np.uint8) if out is None else octets(out, "out")
        self._page.pack(sides[0], sides[1], k_scale, v_scale, page)
        return page

    def unpack(
        self, page: Any, *, k_scale: float = 1.0, v_scale: float = 1.0
    ) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16]]:
        """Keys and values as bf16 bits, uint16 [tokens, heads, head_dim]."""
        keys, values = np.empty(self.shape, np.uint16), np.empty(self.shape, np.uint16)
        self._page.unpack(octets(page, "page"), k_scale, v_scale, keys, values)
        return keys, values

    def _side(self, x: Any, what: str) -> Array:
        array, _ = numbers(x, what, "bf16")
        if array.shape != self.shape:
            raise ValueError(f"{what}: shape {array.shape} given, {self.shape} wanted")
        return array


ScaleLayout = Literal["linear", "128x4", "4x4"]


def apply_scale_layout(scales: Any, layout: ScaleLayout) -> npt.NDArray[np.uint8]:
    """Lays one-byte scales [rows, groups] out; the 128x4 tiles are padded with zeros."""
    array = octets(scales, "scales")
    if array.ndim != 2:
        raise ValueError(f"scales: shape {array.shape} given, [rows, groups] wanted")
    rows, groups = array.shape
    out = np.empty(native.scale_plane_bytes(layout, rows, groups), np.uint8)
    native.scales_apply(layout, array, rows, groups, out)
    return out


def undo_scale_layout(
    laid: Any, layout: ScaleLayout, rows: int, groups: int
) -> npt.NDArray[np.uint8]:
    """Gathers one-byte scales [rows, groups] back from a layout."""
    out = np.empty((rows, groups), np.uint8)
    native.scales_undo(layout, octets(laid, "laid"), rows, groups, out)
    return out
