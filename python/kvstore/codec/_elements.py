"""Element formats: one code per byte, without a scale."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ._arrays import numbers, octets
from ._native import native

Rounding = Literal["even", "toward_zero", "away", "truncate"]
Overflow = Literal["saturate", "special"]


def elements() -> list[str]:
    """Names of the element formats."""
    return native.elements()


def cast(
    x: Any,
    element: str,
    *,
    dtype: str | None = None,
    rounding: Rounding = "even",
    overflow: Overflow = "saturate",
    zero: Literal["keep", "clear"] = "keep",
) -> npt.NDArray[np.uint8]:
    """Codes of x in an element format, one per byte in the low bits, in the shape of x.

    `overflow="special"` gives infinity, else NaN, where the format has them (ml_dtypes); `zero`
    says whether negative zero stays. NaN loses its sign; formats without NaN write their largest.
    """
    array, dtype = numbers(x, "x", dtype)
    out = np.empty(array.shape, np.uint8)
    native.cast(element, array, dtype, out, rounding, overflow, zero)
    return out


def uncast(codes: Any, element: str) -> npt.NDArray[np.float32]:
    """Values of codes, one per byte, as fp32."""
    array = octets(codes, "codes")
    out = np.empty(array.shape, np.float32)
    native.uncast(element, array, out)
    return out


def e8m0_encode(
    x: npt.ArrayLike,
    *,
    toward: Literal["nearest", "up", "down"] = "nearest",
    overflow: Overflow = "saturate",
) -> npt.NDArray[np.uint8]:
    """E8M0 codes of the magnitudes of x; NaN is 255, and so is overflow with `"special"`."""
    array = np.asarray(x, np.float32)
    codes = native.e8m0_encode(array.reshape(-1).tolist(), toward, overflow)
    return np.frombuffer(codes, np.uint8).reshape(array.shape)


def e8m0_decode(codes: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """2^(code - 127) as fp32; 255 is NaN and 0 the subnormal 2^-127."""
    array = np.asarray(codes, np.uint8)
    return np.array(native.e8m0_decode(array.reshape(-1).tolist()), np.float32).reshape(array.shape)
