"""Counts what a store's files hold, as FORMAT.md says, without the engine that wrote them.

Only a store that no process has open and that nothing was ever cleared from is counted rightly: a
descriptor counts when it is valid in its place (INV-3) and of its segment's generation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kvstore.footprint.costs import DESCRIPTOR
from kvstore.footprint.measured.sizes import AREAS, Sizes

__all__ = ["Damaged", "count", "occupied"]

_PAGE = 4096
#: Where the superblock's second copy is, bytes.
_SECOND = 64 << 10
_PART, _PART_0 = 1 << 2, 1 << 5


class Damaged(Exception):
    """A file of a store is not what FORMAT.md says."""


def occupied(folder: Path) -> int:
    """Bytes that the files of a store take on disk."""
    return sum(file.stat().st_blocks * 512 for file in folder.iterdir())


def count(folder: Path) -> Sizes:
    """What the descriptors of a store say, and the lists of parts that its data have."""
    block = _superblock(folder / "superblock")
    store, (segment_bytes, segments) = block[16:32], struct.unpack_from("<QI", block, 80)
    strides = struct.unpack_from("<64I", block, 136)
    sizes = Sizes()
    with (folder / "table").open("rb") as table, (folder / "data").open("rb") as data:
        for segment, generation, stride in _directory(folder, store, segments, strides):
            table.seek(segment * segment_bytes // _PAGE * DESCRIPTOR)
            region = table.read(segment_bytes // stride * DESCRIPTOR)
            for slot in range(len(region) // DESCRIPTOR):
                one = region[slot * DESCRIPTOR : (slot + 1) * DESCRIPTOR]
                if not any(one) or struct.unpack_from("<I", one, 44)[0] != generation:
                    continue
                _check(one, store + struct.pack("<III", 0, segment, slot), f"slot {slot}")
                at = segment * segment_bytes + slot * stride
                _one(sizes, one, stride, data, at)
    return sizes


def _one(sizes: Sizes, descriptor: bytes, stride: int, data: BinaryIO, at: int) -> None:
    (length,), flags = struct.unpack_from("<I", descriptor, 48), descriptor[59]
    manifest = _manifest(data, at) if flags & _PART_0 else 0
    sizes.add(
        AREAS[flags & 3],
        objects=int(flags & _PART_0 > 0 or not flags & _PART),
        logical=length - manifest,
        manifests=manifest,
        slots=stride,
        descriptors=DESCRIPTOR,
    )


def _superblock(path: Path) -> bytes:
    """The valid copy of the highest generation."""
    raw = path.read_bytes()
    copies = [raw[at : at + _PAGE] for at in (0, _SECOND)]
    valid = [copy for copy in copies if copy[:8] == b"KVSTORE\0" and _valid(copy, b"")]
    if not valid:
        raise Damaged(f"{path}: no valid superblock")
    return max(valid, key=lambda copy: int.from_bytes(copy[72:80], "little"))


def _directory(
    folder: Path, store: bytes, segments: int, strides: tuple[int, ...]
) -> Iterator[tuple[int, int, int]]:
    """Number, generation and stride of each segment that a class has or had."""
    raw = (folder / "directory").read_bytes()
    second = -(-segments * 16 // _PAGE) * _PAGE
    for segment in range(segments):
        place = store + struct.pack("<II", 0, segment)
        copies = [raw[at + segment * 16 : at + segment * 16 + 16] for at in (0, second)]
        valid = [copy for copy in copies if any(copy) and _valid(copy, place)]
        if valid:
            newest = max(valid, key=lambda copy: int.from_bytes(copy[:4], "little"))
            yield segment, int.from_bytes(newest[:4], "little"), strides[newest[4]]


def _manifest(data: BinaryIO, at: int) -> int:
    """Bytes of the list of parts that a slot begins with."""
    data.seek(at)
    head = data.read(16)
    if head[:4] != b"KVPM":
        raise Damaged(f"data: no list of parts at {at}")
    parts = int.from_bytes(head[8:12], "little")
    return -(-(16 + 12 * parts) // _PAGE) * _PAGE


def _check(record: bytes, place: bytes, what: str) -> None:
    if not _valid(record, place):
        raise Damaged(f"{what}: its checksum is wrong")


def _valid(record: bytes, place: bytes) -> bool:
    """Whether a record ends with the crc32c of its other bytes and its place."""
    return _crc32c(record[:-4] + place) == int.from_bytes(record[-4:], "little")


def _table() -> list[int]:
    entries = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        entries.append(byte)
    return entries


_CASTAGNOLI = _table()


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CASTAGNOLI[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
