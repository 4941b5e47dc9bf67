"""Schemes: matrices of numbers that share scales by blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ._arrays import BITS, Array, empty_aligned, is_torch, numbers, octets, plain
from ._native import native

Stores = Literal["auto", "cached", "stream"]


@dataclass(frozen=True, slots=True)
class Preset:
    """A named scheme, and the engine and version whose bytes it writes."""

    name: str
    engine: str
    version: str
    note: str
    element: str
    # (rows, columns) that share a scale; 0 stands for all of that axis.
    block: tuple[int, int]
    scale: str
    scale_bytes: int
    code_bits: int
    # Rows that one row of int32 words covers; 1 where codes are packed along the columns.
    words_along_rows: int

    def bits_per_element(self, rows: int = 4096, cols: int = 128) -> float:
        """Bits of one element of a rows x cols matrix, scales included."""
        return sum(native.sizes(self.name, rows, cols)) * 8 / (rows * cols)


def presets() -> list[Preset]:
    """All presets, with the engine and version each comes from."""
    return [Preset(**preset) for preset in native.presets()]


def preset(name: str) -> Preset:
    """The preset of a name; ValueError lists the names there are."""
    native.sizes(name, 0, 128)
    return next(p for p in presets() if p.name == name)


def levels() -> list[str]:
    """SIMD levels of this CPU, weakest first."""
    return native.levels()


def level() -> str:
    """The level that calls take: KVSTORE_CODEC_LEVEL's if the CPU has it, else the best."""
    return native.level()


@dataclass(frozen=True, slots=True)
class Encoded:
    """Codes and scales of a matrix.

    `codes` has the shape of the input with the last axis in bytes (KIVI's keys: uint8 rows of int32
    words, one row per group of tokens); `scales` and `mins` have one entry of `scale_bytes` per
    block, as uint8 (e8m0, e4m3), float32 or float16, shaped [block rows, blocks per row].
    """

    preset: Preset
    shape: tuple[int, ...]
    codes: Array
    scales: Array
    mins: Array
    scale: tuple[float, ...] = ()
    global_scale: float | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and minima."""
        return self.codes.nbytes + self.scales.nbytes + self.mins.nbytes

    def torch_views(self) -> tuple[Any, Any]:
        """Codes and scales as torch tensors over the same memory.

        Codes are float8_e4m3fn, float8_e5m2, their fnuz forms, float4_e2m1fn_x2 or int8, scales
        float8_e8m0fnu, float8_e4m3fn, float32 or float16; what torch has no type for is uint8.
        """
        import torch

        names = {
            "e4m3fn": "float8_e4m3fn",
            "e5m2": "float8_e5m2",
            "e4m3fnuz": "float8_e4m3fnuz",
            "e5m2fnuz": "float8_e5m2fnuz",
            "e2m1": "float4_e2m1fn_x2",
            "int8": "int8",
        }
        scale_names = {"e8m0": "float8_e8m0fnu", "e4m3": "float8_e4m3fn"}
        codes, scales = torch.from_numpy(self.codes), torch.from_numpy(self.scales)
        code_type = getattr(torch, names.get(self.preset.element, "uint8"), torch.uint8)
        if scales.dtype == torch.uint8:
            kind = scale_names.get(self.preset.scale.split()[0], "uint8")
            scales = scales.view(getattr(torch, kind, torch.uint8))
        return codes.view(code_type), scales

    def ml_dtypes_views(self) -> tuple[Array, Array]:
        """Codes and scales as ml_dtypes arrays over the same memory.

        8-bit floats and one-byte scales are viewed; packed FP4 and FP6 stay uint8, since ml_dtypes
        keeps one element per byte.
        """
        import ml_dtypes

        names = {
            "e4m3fn": "float8_e4m3fn",
            "e5m2": "float8_e5m2",
            "e4m3fnuz": "float8_e4m3fnuz",
            "e5m2fnuz": "float8_e5m2fnuz",
        }
        scale_names = {"e8m0": "float8_e8m0fnu", "e4m3": "float8_e4m3fn"}
        codes, scales = self.codes, self.scales
        if name := names.get(self.preset.element):
            codes = codes.view(getattr(ml_dtypes, name))
        if scales.dtype == np.uint8 and (name := scale_names.get(self.preset.scale.split()[0])):
            scales = scales.view(getattr(ml_dtypes, name))
        return codes, scales


def _matrix(shape: tuple[int, ...], what: str) -> tuple[int, int]:
    if not shape or 0 in shape:
        raise ValueError(f"{what}: shape {shape} given, at least one row of at least one element")
    return math.prod(shape[:-1]), shape[-1]


def _scale_dtype(preset: Preset) -> type[np.generic]:
    types: dict[int, type[np.generic]] = {2: np.float16, 4: np.float32}
    return types.get(preset.scale_bytes, np.uint8)


def _block_shape(preset: Preset, rows: int, cols: int) -> tuple[int, int]:
    if preset.scale_bytes == 0:
        return (0, 0)
    block_rows, block_cols = preset.block
    return (rows // (block_rows or rows), -(-cols // (block_cols or cols)))


def encode(
    x: Any,
    preset_name: str,
    *,
    dtype: str | None = None,
    scale: float | Sequence[float] = (),
    global_scale: float | None = None,
    out: Encoded | None = None,
    level: str | None = None,
    threads: int = 0,
    stores: Stores = "auto",
) -> Encoded:
    """Encodes x [..., cols] by a preset; leading axes are rows (tokens, or tokens x heads).

    x is bfloat16, float16 or float32 (uint16 bits with `dtype`). `scale` is what static schemes
    divide by, one number or one per block of a row; `global_scale` NVFP4's second level. `out` is
    an earlier result of the same preset and shape whose memory is written again. `level` forces a
    SIMD level, `threads` limits them (0: as many as there are cores), `stores="stream"` writes
    past the cache.
    """
    array, dtype = numbers(x, "x", dtype)
    rows, cols = _matrix(array.shape, "x")
    code_bytes, scale_bytes, min_bytes = native.sizes(preset_name, rows, cols)
    given = (float(scale),) if isinstance(scale, (int, float)) else tuple(map(float, scale))
    if out is None:
        found = preset(preset_name)
        per_word = found.words_along_rows
        lead = array.shape[:-1] if per_word == 1 else (rows // per_word,)
        scales = empty_aligned((scale_bytes,), np.uint8).view(_scale_dtype(found))
        scales = scales.reshape(_block_shape(found, rows, cols)) if scale_bytes else scales
        mins = np.empty(min_bytes // 2, np.float16)
        mins = mins.reshape(scales.shape) if min_bytes else mins
        codes = empty_aligned((*lead, code_bytes // max(math.prod(lead), 1)), np.uint8)
        out = Encoded(found, array.shape, codes, scales, mins, given, global_scale)
    elif out.preset.name != preset_name or out.shape != array.shape:
        raise ValueError(
            f"out: {out.preset.name} of shape {out.shape} given, "
            f"{preset_name} of shape {array.shape} wanted"
        )
    else:
        out = Encoded(out.preset, out.shape, out.codes, out.scales, out.mins, given, global_scale)
    native.encode(
        preset_name,
        array,
        dtype,
        cols,
        out.codes,
        out.scales,
        out.mins,
        list(given),
        global_scale,
        level,
        threads,
        stores,
    )
    return out


def decode(
    encoded: Encoded,
    *,
    dtype: str = "bf16",
    out: Any = None,
    level: str | None = None,
    threads: int = 0,
    stores: Stores = "auto",
) -> Any:
    """Decodes to an array of the shape that was encoded: `out`, or a new numpy array.

    `dtype` is bf16 (uint16 bits, or ml_dtypes.bfloat16 when that is installed), fp16 or fp32; with
    `out` (numpy, ml_dtypes or torch) it is the type of `out`. NaN is written as the quiet NaN.
    """
    _, cols = _matrix(encoded.shape, "shape")
    if out is None:
        if dtype not in BITS:
            raise ValueError(f"dtype: {dtype!r} given, one of {', '.join(BITS)} wanted")
        array = empty_aligned(encoded.shape, BITS[dtype])
        result: Any = _as_bfloat16(array) if dtype == "bf16" else array
    else:
        bits = not is_torch(out) and plain(out, "out")[1] == "uint16"
        array, dtype = numbers(out, "out", "bf16" if bits else None)
        result = out
        if array.shape != encoded.shape:
            raise ValueError(f"out: shape {array.shape} given, {encoded.shape} wanted")
    native.decode(
        encoded.preset.name,
        octets(encoded.codes, "codes"),
        octets(encoded.scales, "scales"),
        octets(encoded.mins, "mins"),
        cols,
        array,
        dtype,
        list(encoded.scale),
        encoded.global_scale,
        level,
        threads,
        stores,
    )
    return result


def _as_bfloat16(array: Array) -> Array:
    try:
        import ml_dtypes
    except ImportError:
        return array
    return array.view(ml_dtypes.bfloat16)
