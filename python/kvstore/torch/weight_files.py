"""Fingerprints of weights in files: by their bytes, by what was remembered of them, or by the
names that the Hugging Face cache gives them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvstore.errors import InvalidArgument
from kvstore.torch.framed import CHUNK, Framed, chunks, sample_spans
from kvstore.torch.remembered import Remembered
from kvstore.types import WeightsFingerprint, WeightsKind

__all__ = ["fingerprint", "no_kind"]

KINDS: tuple[WeightsKind, ...] = ("full", "hub", "cached", "sampled")

#: Bytes up to which a file of the Hugging Face cache is read whose name is no SHA-256.
SMALL = 16 << 20

#: Endings of weights files, the preferred ones first: a folder often has one model in several.
_FORMATS = ((".safetensors",), (".bin", ".pt", ".pth"), (".gguf",))

_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}


def fingerprint(
    path: Path,
    kind: WeightsKind | None,
    remember: str | os.PathLike[str] | None,
    limit: int,
) -> WeightsFingerprint:
    """The fingerprint of a weights file or a folder; `limit` in bytes is that of `full` by
    default. InvalidArgument says what a kind does not find there."""
    files = weights_files(path)
    if kind is None:
        size = sum(file.stat().st_size for file in files)
        kind = "full" if size <= limit and _all_safetensors(files) else _without_reading(files)
    match kind:
        case "full" | "sampled":
            return WeightsFingerprint(kind, _of_tensors(files, kind))
        case "hub":
            return WeightsFingerprint(kind, _of_names(files, [_hub_name(file) for file in files]))
        case "cached":
            digests = Remembered(remember).digests(files)
            return WeightsFingerprint(kind, _of_names(files, digests, "cached"))
    raise no_kind(kind)


def no_kind(kind: object) -> InvalidArgument:
    """The error for what is no kind of fingerprint."""
    return InvalidArgument(f"kind = {kind!r}: it is one of {', '.join(KINDS)}, name")


def weights_files(path: Path) -> list[Path]:
    """The weights files of a folder with their index, or the file itself, in order of name."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InvalidArgument(
            f"{path} is no file and no folder. The snapshot of a model of the Hugging Face hub is "
            "found by huggingface_hub.snapshot_download(name, local_files_only=True)"
        )
    for endings in _FORMATS:
        found = [file for file in path.iterdir() if file.suffix in endings]
        if found:
            indexes = [f for f in path.glob("*.index.json") if f.suffixes[-3:-2] == [endings[0]]]
            return sorted([*found, *indexes])
    raise InvalidArgument(f"{path} has no weights: no {', '.join(e for f in _FORMATS for e in f)}")


def _without_reading(files: list[Path]) -> WeightsKind:
    try:
        for file in files:
            _hub_name(file)
    except InvalidArgument:
        return "cached"
    return "hub"


def _of_names(files: list[Path], digests: list[bytes], kind: str = "hub") -> bytes:
    framed = Framed(f"kvstore weights {kind} 1")
    for file, digest in zip(files, digests, strict=True):
        framed.text(file.name)
        framed.bytes(digest)
    return framed.digest()


def _hub_name(file: Path) -> bytes:
    """The SHA-256 of a file of the Hugging Face cache: large ones have it as the name of the blob
    that they link to, small ones are read (theirs is a SHA-1 of git)."""
    blob = file.readlink() if file.is_symlink() else Path()
    if blob.parent.name != "blobs":
        raise InvalidArgument(
            f"{file}: it is no link into the blobs of a Hugging Face cache, so nothing says its "
            'SHA-256. Use kind="cached" or kind="full"'
        )
    if re.fullmatch("[0-9a-f]{64}", blob.name):
        if not file.exists():
            raise InvalidArgument(f"{file}: the blob that it links to is not there")
        return bytes.fromhex(blob.name)
    size = file.stat().st_size
    if size > SMALL:
        raise InvalidArgument(
            f"{file}: its blob is named {blob.name!r}, which is no SHA-256, and it is too large "
            f'to read here ({size:,} bytes, the limit is {SMALL:,}). Use kind="cached"'
        )
    return hashlib.sha256(file.read_bytes()).digest()


def _all_safetensors(files: list[Path]) -> bool:
    return all(file.suffix == ".safetensors" or file.name.endswith(".json") for file in files)


def _of_tensors(files: list[Path], kind: WeightsKind) -> bytes:
    """As of a state dict with the same tensors; those of all files together."""
    if not _all_safetensors(files):
        other = next(file for file in files if not _all_safetensors([file]))
        raise InvalidArgument(
            f'{other}: kind "{kind}" reads safetensors files; use kind="cached" for this one'
        )
    found: dict[str, tuple[Path, str, tuple[int, ...], int, int]] = {}
    for file in files:
        if file.suffix == ".safetensors":
            for name, entry in _entries(file):
                if name in found:
                    raise InvalidArgument(f"tensor {name!r} is in {found[name][0]} and in {file}")
                found[name] = (file, *entry)
    framed = Framed(f"kvstore weights {kind} 1")
    framed.number(len(found))
    for name in sorted(found):
        file, dtype, shape, first, size = found[name]
        framed.text(name)
        framed.text("tensor")
        framed.shaped(dtype, shape, size)
        spans = sample_spans(size) if kind == "sampled" else chunks(size)
        framed.raw(_pieces(file, first, spans))
    return framed.digest()


def _pieces(file: Path, first: int, spans: list[tuple[int, int]]) -> Iterator[bytes]:
    with file.open("rb") as data:
        for start, end in spans:
            data.seek(first + start)
            piece = data.read(end - start)
            if len(piece) != end - start:
                raise InvalidArgument(f"{file}: it ends before its last tensor (cut short?)")
            yield piece


def _entries(file: Path) -> Iterator[tuple[str, tuple[str, tuple[int, ...], int, int]]]:
    """Name, dtype, shape, first byte and bytes of each tensor of a safetensors file."""
    with file.open("rb") as data:
        length = int.from_bytes(data.read(8), "little")
        if length > CHUNK:
            raise InvalidArgument(f"{file}: a header of {length:,} bytes is no safetensors header")
        try:
            header: dict[str, Any] = json.loads(data.read(length))
        except ValueError as error:
            raise InvalidArgument(f"{file}: its header is not JSON: {error}") from error
    header.pop("__metadata__", None)
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        dtype = _NAMES.get(entry["dtype"], str(entry["dtype"]).lower())
        yield name, (dtype, tuple(entry["shape"]), 8 + length + first, last - first)
