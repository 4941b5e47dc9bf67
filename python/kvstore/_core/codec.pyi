"""
Numbers to bytes. See `kvstore.codec` for the typed face of this module.
"""

from _typeshed import SupportsGetItem, SupportsLenAndGetItem
from typing import Any, SupportsFloat, SupportsIndex, final

__all__ = ["GqaPage", "Packer", "cast", "class_stride", "decode", "e8m0_decode", "e8m0_encode", "elements", "encode", "formats", "level", "levels", "lossless_bound", "lossless_words", "move_entries", "pack", "page_bytes", "planes_join", "planes_split", "presets", "scale_plane_bytes", "scales_apply", "scales_undo", "sizes", "traffic", "uncast", "unpack"]

@final
class GqaPage:
    """
    A page of grouped-query attention.
    """
    def __new__(cls, /, preset: str, shape: SupportsLenAndGetItem[SupportsIndex], order: str, scales: str) -> GqaPage: ...
    @property
    def nbytes(self, /) -> int:
        """
        Bytes of a page.
        """
    def pack(self, /, keys: Any, values: Any, k_scale: SupportsFloat | SupportsIndex, v_scale: SupportsFloat | SupportsIndex, page: Any) -> None:
        """
        Packs bf16 keys and values.
        """
    @property
    def stride(self, /) -> int:
        """
        Bytes from one (token, head) row of codes to the next.
        """
    def unpack(self, /, page: Any, k_scale: SupportsFloat | SupportsIndex, v_scale: SupportsFloat | SupportsIndex, keys: Any, values: Any) -> None:
        """
        Unpacks a page to bf16 keys and values.
        """

@final
class Packer:
    """
    Working memory of lossless encodes and decodes.
    """
    def __new__(cls, /) -> Packer: ...
    def decode(self, /, frame: Any, out: Any) -> None:
        """
        Unpacks a frame into `out`.
        """
    def encode(self, /, words: Any, out: Any) -> int:
        """
        Packs words into `out`; the frame's length.
        """

def cast(name: str, x: Any, dtype: str, out: Any, rounding: str, overflow: str, zero: str) -> None:
    """
    Casts numbers to one code per byte, without a scale.
    """

def class_stride(raw: SupportsIndex, unit: SupportsIndex, encoded: SupportsIndex) -> int:
    """
    The stride of the class that holds `encoded` bytes of an object of `raw` bytes.
    """

def decode(preset: str, codes: Any, scales: Any, mins: Any, cols: SupportsIndex, out: Any, dtype: str, scale: SupportsGetItem[int, SupportsFloat | SupportsIndex], global_scale: SupportsFloat | SupportsIndex | None, level: str | None, threads: SupportsIndex, stores: str) -> None:
    """
    Decodes a matrix of rows of `cols` elements.
    """

def e8m0_decode(codes: SupportsGetItem[int, SupportsIndex]) -> list[float]:
    """
    Values of E8M0 codes.
    """

def e8m0_encode(x: SupportsGetItem[int, SupportsFloat | SupportsIndex], toward: str, overflow: str) -> bytes:
    """
    E8M0 codes of fp32 numbers.
    """

def elements() -> list[str]:
    """
    Names of the element formats.
    """

def encode(preset: str, x: Any, dtype: str, cols: SupportsIndex, codes: Any, scales: Any, mins: Any, scale: SupportsGetItem[int, SupportsFloat | SupportsIndex], global_scale: SupportsFloat | SupportsIndex | None, level: str | None, threads: SupportsIndex, stores: str) -> None:
    """
    Encodes a matrix of rows of `cols` elements.
    """

def formats() -> list[dict[str, Any]]:
    """
    One dictionary per record format.
    """

def level() -> str:
    """
    The level that calls take by default.
    """

def levels() -> list[str]:
    """
    The levels of this CPU, weakest first.
    """

def lossless_bound(words: SupportsIndex) -> int:
    """
    The longest frame of `words` 16-bit numbers.
    """

def lossless_words(frame: Any) -> int:
    """
    The number of words that a frame says it holds.
    """

def move_entries(source: tuple[str, SupportsIndex], pages: Any, target: tuple[str, SupportsIndex], out: Any, count: SupportsIndex) -> None:
    """
    Moves entries between page shapes.
    """

def pack(format: str, rows: Any, entries: SupportsIndex, pages: Any, level: str | None, threads: SupportsIndex) -> None:
    """
    Packs bf16 rows into pages.
    """

def page_bytes(format: str, entries: SupportsIndex) -> int:
    """
    Bytes of a page of `entries`.
    """

def planes_join(bytes: Any, out: Any, level: str | None) -> None:
    """
    Joins planes.
    """

def planes_split(words: Any, out: Any, level: str | None) -> None:
    """
    Low bytes of 16-bit numbers, then high bytes.
    """

def presets() -> list[dict[str, Any]]:
    """
    One dictionary per preset.
    """

def scale_plane_bytes(layout: str, rows: SupportsIndex, groups: SupportsIndex) -> int:
    """
    Bytes of a plane of scales in a layout.
    """

def scales_apply(layout: str, linear: Any, rows: SupportsIndex, groups: SupportsIndex, out: Any) -> None:
    """
    Lays row-major one-byte scales out.
    """

def scales_undo(layout: str, laid: Any, rows: SupportsIndex, groups: SupportsIndex, out: Any) -> None:
    """
    Gathers row-major scales back.
    """

def sizes(preset: str, rows: SupportsIndex, cols: SupportsIndex) -> tuple[int, int, int]:
    """
    Bytes of codes, scales and minima for rows x cols.
    """

def traffic(source: Any, times: SupportsIndex, out: Any, level: str | None) -> None:
    """
    Each 64 bytes of `source`, `times` times, streamed: a decode's traffic without arithmetic.
    """

def uncast(name: str, codes: Any, out: Any) -> None:
    """
    Values of codes, one per byte, as fp32.
    """

def unpack(format: str, pages: Any, entries: SupportsIndex, rows: Any, level: str | None, threads: SupportsIndex) -> None:
    """
    Unpacks pages to bf16 rows.
    """
