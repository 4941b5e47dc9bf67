"""Lossless packing of 16-bit numbers: byte planes and zstd level 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import Array, plain
from ._native import native


@dataclass(frozen=True, slots=True)
class Packed:
    """What packing saved, in bytes and in slots of the class ladder."""

    raw_bytes: int
    packed_bytes: int
    # Stride of the class that holds the raw object, and of the one that holds the packed one.
    raw_slot: int
    packed_slot: int

    @property
    def ratio_bytes(self) -> float:
        """Packed over raw bytes."""
        return self.packed_bytes / self.raw_bytes

    @property
    def ratio_slots(self) -> float:
        """What the disk saves: packed over raw slot."""
        return self.packed_slot / self.raw_slot


def _words(x: Any, what: str) -> Array:
    array, name = plain(x, what)
    if array.dtype.itemsize != 2:
        raise TypeError(f"{what}: {name} given, 16-bit numbers wanted")
    return array.view(np.uint16)


def pack_lossless(x: Any) -> npt.NDArray[np.uint8]:
    """Packs 16-bit numbers (bfloat16, float16 or bits) into one frame."""
    words = _words(x, "x")
    out = np.empty(native.lossless_bound(words.size), np.uint8)
    return out[: native.Packer().encode(words, out)]


def unpack_lossless(frame: Any, out: Any = None) -> npt.NDArray[np.uint16]:
    """The bits that were packed, uint16; into `out` where given. A damaged frame is ValueError."""
    array, _ = plain(frame, "frame")
    if out is None:
        out = np.empty(native.lossless_words(array), np.uint16)
    words = _words(out, "out")
    native.Packer().decode(array, words)
    return words


def lossless_report(x: Any, *, object_bytes: int = 1 << 20, unit: int = 4096) -> Packed:
    """Packs x in objects of `object_bytes` and sums bytes and slots.

    A slot is a class of the ladder at 1/16 steps of the raw stride, a multiple of the device's
    `unit`: what the disk really saves.
    """
    words = _words(x, "x").reshape(-1)
    packer = native.Packer()
    step = object_bytes // 2
    out = np.empty(native.lossless_bound(step), np.uint8)
    raw = packed = raw_slot = packed_slot = 0
    for start in range(0, words.size, step):
        part = words[start : start + step]
        length = packer.encode(part, out)
        raw += part.nbytes
        packed += min(length, part.nbytes)
        raw_slot += native.class_stride(part.nbytes, unit, part.nbytes)
        packed_slot += native.class_stride(part.nbytes, unit, length)
    if raw == 0:
        raise ValueError("x: 0 elements given, at least 1 wanted")
    return Packed(raw, packed, raw_slot, packed_slot)
