"""The compiled codec, typed."""

from __future__ import annotations

import importlib
from typing import Any, Protocol, cast

# Anything with the buffer protocol; numpy arrays in practice.
Buffer = Any


class GqaPage(Protocol):
    @property
    def nbytes(self) -> int: ...
    @property
    def stride(self) -> int: ...
    def pack(
        self, keys: Buffer, values: Buffer, k_scale: float, v_scale: float, page: Buffer
    ) -> None: ...
    def unpack(
        self, page: Buffer, k_scale: float, v_scale: float, keys: Buffer, values: Buffer
    ) -> None: ...


class Packer(Protocol):
    def encode(self, words: Buffer, out: Buffer) -> int: ...
    def decode(self, frame: Buffer, out: Buffer) -> None: ...


class Native(Protocol):
    """What `kvstore._core.codec` offers."""

    def levels(self) -> list[str]: ...
    def level(self) -> str: ...
    def elements(self) -> list[str]: ...
    def presets(self) -> list[dict[str, Any]]: ...
    def sizes(self, preset: str, rows: int, cols: int) -> tuple[int, int, int]: ...
    def encode(
        self,
        preset: str,
        x: Buffer,
        dtype: str,
        cols: int,
        codes: Buffer,
        scales: Buffer,
        mins: Buffer,
        scale: list[float],
        global_scale: float | None,
        level: str | None,
        threads: int,
        stores: str,
    ) -> None: ...
    def decode(
        self,
        preset: str,
        codes: Buffer,
        scales: Buffer,
        mins: Buffer,
        cols: int,
        out: Buffer,
        dtype: str,
        scale: list[float],
        global_scale: float | None,
        level: str | None,
        threads: int,
        stores: str,
    ) -> None: ...
    def cast(
        self,
        name: str,
        x: Buffer,
        dtype: str,
        out: Buffer,
        rounding: str,
        overflow: str,
        zero: str,
    ) -> None: ...
    def uncast(self, name: str, codes: Buffer, out: Buffer) -> None: ...
    def e8m0_encode(self, x: list[float], toward: str, overflow: str) -> bytes: ...
    def e8m0_decode(self, codes: list[int]) -> list[float]: ...
    def formats(self) -> list[dict[str, Any]]: ...
    def page_bytes(self, format: str, entries: int) -> int: ...
    def pack(
        self,
        format: str,
        rows: Buffer,
        entries: int,
        pages: Buffer,
        level: str | None,
        threads: int,
    ) -> None: ...
    def unpack(
        self,
        format: str,
        pages: Buffer,
        entries: int,
        rows: Buffer,
        level: str | None,
        threads: int,
    ) -> None: ...
    def move_entries(
        self,
        source: tuple[str, int],
        pages: Buffer,
        target: tuple[str, int],
        out: Buffer,
        count: int,
    ) -> None: ...
    def GqaPage(
        self, preset: str, shape: tuple[int, int, int], order: str, scales: str
    ) -> GqaPage: ...
    def scale_plane_bytes(self, layout: str, rows: int, groups: int) -> int: ...
    def scales_apply(
        self, layout: str, linear: Buffer, rows: int, groups: int, out: Buffer
    ) -> None: ...
    def scales_undo(
        self, layout: str, laid: Buffer, rows: int, groups: int, out: Buffer
    ) -> None: ...
    def planes_split(self, words: Buffer, out: Buffer, level: str | None) -> None: ...
    def planes_join(self, planes: Buffer, out: Buffer, level: str | None) -> None: ...
    def traffic(self, source: Buffer, times: int, out: Buffer, level: str | None) -> None: ...
    def lossless_bound(self, words: int) -> int: ...
    def lossless_words(self, frame: Buffer) -> int: ...
    def class_stride(self, raw: int, unit: int, encoded: int) -> int: ...
    def Packer(self) -> Packer: ...


native = cast(Native, importlib.import_module("kvstore._core").codec)
