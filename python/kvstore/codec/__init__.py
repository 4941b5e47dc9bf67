"""Numbers to bytes: the formats in which engines keep key-value caches.

Arrays come from numpy, torch (CPU), ml_dtypes, or anything with the buffer protocol or DLPack; they
must be C-contiguous. Nothing is copied on the way in, the GIL is released while numbers are
converted, and every output can be the caller's. Misuse raises ValueError or TypeError naming what
was given and what is wanted.

    >>> import numpy as np, kvstore.codec as codec
    >>> coded = codec.encode(np.ones((4, 128), np.float32), "fp8_e4m3.ue8m0.64")
    >>> coded.codes.shape, coded.scales.shape
    ((4, 128), (4, 2))
    >>> codec.decode(coded, dtype="fp32")[0, 0]
    np.float32(1.0)
"""

from ._elements import cast, e8m0_decode, e8m0_encode, elements, uncast
from ._lossless import Packed, lossless_report, pack_lossless, unpack_lossless
from ._records import (
    GqaPage,
    RecordFormat,
    apply_scale_layout,
    move,
    pack,
    page_bytes,
    record_formats,
    undo_scale_layout,
    unpack,
)
from ._schemes import Encoded, Preset, decode, encode, level, levels, preset, presets

__all__ = [
    "Encoded",
    "GqaPage",
    "Packed",
    "Preset",
    "RecordFormat",
    "apply_scale_layout",
    "cast",
    "decode",
    "e8m0_decode",
    "e8m0_encode",
    "elements",
    "encode",
    "level",
    "levels",
    "lossless_report",
    "move",
    "pack",
    "pack_lossless",
    "page_bytes",
    "preset",
    "presets",
    "record_formats",
    "uncast",
    "undo_scale_layout",
    "unpack",
    "unpack_lossless",
]
