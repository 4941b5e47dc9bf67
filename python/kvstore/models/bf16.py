"""bfloat16 in numpy, which has no such type: the upper half of a float32, held as uint16."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["bf16_to_f32", "f32_to_bf16"]


def f32_to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round float32 to the nearest bfloat16, ties to even. Finite values only, same shape."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    # Adding just under half a unit (just half, where the kept part is odd) carries into the kept
    # half exactly when rounding goes up.
    odd = (bits >> 16) & np.uint32(1)
    return ((bits + np.uint32(0x7FFF) + odd) >> 16).astype(np.uint16)


def bf16_to_f32(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Widen bfloat16 bits to float32, exactly. Any strides in, C-contiguous out, same shape."""
    wide = bits.astype(np.uint32, order="C")
    wide <<= 16
    return wide.view(np.float32)
