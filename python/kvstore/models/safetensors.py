"""safetensors files in numpy alone: a strict reader, and a writer of bfloat16.

The format (https://github.com/huggingface/safetensors, "Format"): 8 bytes of header length, u64
little-endian; a JSON object that gives each tensor's `dtype`, `shape` and `data_offsets` (begin and
end in bytes, counted from the end of the header); then the tensors' bytes, little-endian and
row-major, one after the other without holes. `__metadata__` is an object of strings.

Whatever does not fit raises `SafetensorsError`, which names the file and the tensor or field: a
file that is cut short or has a flipped bit in its header must not become a model that talks
nonsense. The format has no checksum, so a flipped bit in a tensor cannot be seen here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kvstore.models.bf16 import bf16_to_f32, f32_to_bf16

__all__ = ["SafetensorsError", "SafetensorsFile", "pack_bf16", "parse", "read"]

MAX_HEADER = 100_000_000
"""Bytes of header that the reference implementation accepts."""

_DTYPES: dict[str, np.dtype[Any]] = {
    "BF16": np.dtype("<u2"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}


class SafetensorsError(ValueError):
    """The file is not a safetensors file that this reader understands."""


class Source(Protocol):
    """What is read from: a `pathlib.Path` or a resource of `importlib.resources`."""

    @property
    def name(self) -> str: ...

    def read_bytes(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    tensors: dict[str, NDArray[Any]]
    """By name. BF16 is widened to float32; F16, F32 and F64 keep their type."""
    metadata: dict[str, str]
    """The file's `__metadata__`, empty where it has none."""


def read(source: Source) -> SafetensorsFile:
    """Read a whole file. OSError where it cannot be opened, SafetensorsError where it is wrong."""
    return parse(source.read_bytes(), source.name)


def parse(data: bytes, name: str) -> SafetensorsFile:
    """Read a file's bytes; `name` is what errors call it."""
    header, begin = _header(data, name)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise SafetensorsError(f"{name}: __metadata__ must be an object of strings")
    payload = memoryview(data)[begin:]
    tensors: dict[str, NDArray[Any]] = {}
    spans: list[tuple[int, int, str]] = []
    for tensor, entry in header.items():
        dtype, shape, first, last = _entry(entry, len(payload), f"{name}: tensor {tensor!r}")
        spans.append((first, last, tensor))
        raw = np.frombuffer(payload[first:last], dtype=_DTYPES[dtype]).reshape(shape)
        tensors[tensor] = bf16_to_f32(raw) if dtype == "BF16" else raw
    at = 0
    for first, last, tensor in sorted(spans):
        if first != at:
            raise SafetensorsError(
                f"{name}: tensor {tensor!r}: begins at byte {first} of the data, expected {at}"
            )
        at = last
    if at != len(payload):
        raise SafetensorsError(f"{name}: {len(payload) - at} bytes behind the last tensor")
    return SafetensorsFile(tensors, metadata)


def pack_bf16(tensors: Mapping[str, NDArray[np.float32]], metadata: Mapping[str, str]) -> bytes:
    """A file with these tensors rounded to bfloat16, in the order of their names."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    parts: list[bytes] = []
    at = 0
    for name, values in sorted(tensors.items()):
        parts.append(f32_to_bf16(values).astype("<u2").tobytes())
        end = at + len(parts[-1])
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)  # the format pads with spaces, so that tensors lie aligned
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def _header(data: bytes, name: str) -> tuple[dict[str, Any], int]:
    """The parsed JSON header and the offset of the first tensor byte."""
    if len(data) < 8:
        raise SafetensorsError(f"{name}: {len(data)} bytes, too short for the header length (8)")
    size = int.from_bytes(data[:8], "little")
    if size > MAX_HEADER:
        raise SafetensorsError(f"{name}: header length {size} is above {MAX_HEADER}")
    if 8 + size > len(data):
        raise SafetensorsError(
            f"{name}: header length {size}, but only {len(data) - 8} bytes follow (cut short?)"
        )
    try:
        header = json.loads(data[8 : 8 + size].decode("utf-8"), object_pairs_hook=_no_twins)
    except ValueError as error:  # bad UTF-8, bad JSON, a name that stands twice
        raise SafetensorsError(f"{name}: header: {error}") from error
    if not isinstance(header, dict):
        raise SafetensorsError(f"{name}: header must be a JSON object")
    return header, 8 + size


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key!r} stands twice")
        found[key] = value
    return found


def _entry(entry: Any, available: int, where: str) -> tuple[str, tuple[int, ...], int, int]:
    """Check one tensor's entry: dtype, shape, first and last byte in the data."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise SafetensorsError(f"{where}: must have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise SafetensorsError(f"{where}: dtype {dtype!r} is none of {', '.join(_DTYPES)}")
    if not _counts(shape):
        raise SafetensorsError(f"{where}: shape {shape!r} must be a list of sizes")
    if not _counts(offsets) or len(offsets) != 2:
        raise SafetensorsError(f"{where}: data_offsets {offsets!r} must be [begin, end]")
    first, last = offsets
    if last > available:
        raise SafetensorsError(
            f"{where}: ends at byte {last} of the data, but there are {available} (cut short?)"
        )
    # Python integers do not overflow, so a shape made to wrap around fails here as well.
    need = _DTYPES[dtype].itemsize
    for size in shape:
        need *= size
    if last - first != need:
        raise SafetensorsError(
            f"{where}: {dtype} {shape} is {need} bytes, data_offsets {offsets} give {last - first}"
        )
    return dtype, tuple(shape), first, last


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) is int and v >= 0 for v in value)
