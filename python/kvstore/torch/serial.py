"""Trees of tensors and plain values as bytes, and back, bit for bit.

A tree is made of None, bool, int, float, str, list, tuple, dict, `torch.Size`, `torch.dtype`,
`torch.device` and dense tensors, quanto's quantised ones among them. Nothing of it is code: no
pickle, and no class but those that this file names. Numbers are little-endian:

| bytes | what |
| --- | --- |
| 0-7 | "KVTREE", version (u16) |
| 8-15 | bytes of the whole object (u64) |
| 16-23 | bytes of the header (u64) |
| 24-31 | zeros |
| 32-63 | BLAKE3 of the bytes 0-31 and of those from 64 on |
| 64- | the header: JSON, filled up with spaces to a multiple of 64 |
| then | the tensors, row-major, each filled up with zeros to a multiple of 64 |

In the header None, bool, int and str stand for themselves; everything else is an object of one
entry, {kind: value}: a float as its hexadecimal digits, a dict as a list of pairs, a tensor as
[dtype, shape, first byte of the tensors], a device without its name, since a tree is read for the
device of a model.
"""

from __future__ import annotations

import importlib
import json
import math
import struct
from typing import Any, TypeGuard

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from kvstore._core import Blake3
from kvstore.torch.errors import Unreadable, Unsupported

__all__ = ["VERSION", "decode", "encode"]

#: Version of the format. It is part of a layout's form: other versions are other namespaces.
VERSION = 1
_MAGIC = b"KVTREE" + struct.pack("<H", VERSION)
_START, _ALIGN, _DEEPEST = 64, 64, 32
#: Types of a dict's keys.
_KEYS = (bool, int, str)

#: Tensors that are made of others, as `torch.utils._python_dispatch` takes them apart: the class,
#: and the module of it that is imported when one is read.
_WRAPPERS = {
    "WeightQBitsTensor": "optimum.quanto.tensor.weights.qbits",
    "PackedTensor": "optimum.quanto.tensor.packed",
}


def encode(tree: Any) -> torch.Tensor:
    """The bytes of a tree: uint8 [bytes] on the CPU.

    Raises Unsupported for what has no place in the format, with its path in the tree.
    """
    writer = _Writer()
    header = json.dumps(writer.node(tree, "tree"), separators=(",", ":")).encode()
    header += b" " * (-len(header) % _ALIGN)
    first = _START + len(header)
    out = torch.zeros(first + writer.nbytes, dtype=torch.uint8)
    head = _MAGIC + struct.pack("<QQQ", len(out), len(header), 0)
    out[: len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
    out[_START:first] = torch.frombuffer(bytearray(header), dtype=torch.uint8)
    for at, tensor in writer.tensors:
        size = tensor.numel() * tensor.element_size()
        place = out[first + at : first + at + size]
        place.view(tensor.dtype).view(tensor.shape).copy_(tensor)
    out[32:_START] = torch.frombuffer(bytearray(_digest(out)), dtype=torch.uint8)
    return out


def decode(data: torch.Tensor, device: torch.device) -> Any:
    """The tree of bytes that `encode` made: uint8 [bytes] on the CPU. Its tensors are on
    ``device``; on the CPU they are views of ``data``.

    Raises Unreadable where a byte is not what was written.
    """
    if len(data) < _START:
        raise Unreadable(f"{len(data)} bytes, an object has at least {_START}")
    head = data[:_START].numpy().tobytes()
    if head[:8] != _MAGIC:
        raise Unreadable(f"begins with {head[:8]!r}, not {_MAGIC!r}")
    size, length, _ = struct.unpack("<QQQ", head[8:32])
    if size != len(data) or length % _ALIGN or _START + length > size:
        raise Unreadable(f"{len(data)} bytes, of a header of {length} and {size} in all")
    if head[32:] != _digest(data):
        raise Unreadable("its bytes have another digest than when they were written")
    text = data[_START : _START + length].numpy().tobytes()
    try:
        node = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the header is no JSON: {error}") from error
    return _Reader(data[_START + length :].to(device), device).value(node, 0)


def _digest(data: torch.Tensor) -> bytes:
    hasher = Blake3()
    hasher.update(data[:32])
    hasher.update(data[_START:])
    return hasher.digest()


class _Writer:
    """Nodes of a header, and the tensors that they name, by first byte."""

    def __init__(self) -> None:
        self.tensors: list[tuple[int, torch.Tensor]] = []
        self.nbytes = 0

    def node(self, value: Any, path: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return {"float": value.hex()}
        if kind in (list, tuple):
            return {kind.__name__: [self.node(v, f"{path}[{i}]") for i, v in enumerate(value)]}
        if kind is dict:
            for key in value:
                if type(key) not in _KEYS:
                    raise Unsupported(f"{path} has the key {key!r}, which cannot be kept")
            return {"dict": [[k, self.node(v, f"{path}.{k}")] for k, v in value.items()]}
        if kind is torch.Size:
            return {"size": list(value)}
        if kind is torch.dtype:
            return {"dtype": str(value).removeprefix("torch.")}
        if kind is torch.device:
            return {"device": None}
        if kind.__name__ in _WRAPPERS and is_traceable_wrapper_subclass(value):
            return self._wrapped(value, path)
        if kind is torch.Tensor and value.layout is torch.strided and not value.is_quantized:
            return self._tensor(value)
        raise Unsupported(f"{path} is a {kind.__name__}, which cannot be kept")

    def _tensor(self, tensor: torch.Tensor) -> Any:
        at = self.nbytes
        self.tensors.append((at, tensor.detach()))
        size = tensor.numel() * tensor.element_size()
        self.nbytes += size + -size % _ALIGN
        dtype = str(tensor.dtype).removeprefix("torch.")
        return {"tensor": [dtype, list(tensor.shape), at]}

    def _wrapped(self, tensor: Any, path: str) -> Any:
        names, context = tensor.__tensor_flatten__()
        parts = {name: getattr(tensor, name) for name in names}
        shape, strides = tensor.size(), list(tensor.stride())
        fields = [type(tensor).__name__, parts, context, shape, strides]
        return {"wrapped": self.node(fields, path)}


class _Reader:
    """Values of a header's nodes."""

    def __init__(self, data: torch.Tensor, device: torch.device) -> None:
        self._data, self._device = data, device

    def value(self, node: Any, depth: int) -> Any:
        if node is None or type(node) in (bool, int, str):
            return node
        if depth > _DEEPEST or type(node) is not dict or len(node) != 1:
            raise Unreadable(f"{_short(node)} is no node of a header")
        [(kind, inner)] = node.items()
        if kind == "device" and inner is None:
            return self._device
        if kind == "float" and type(inner) is str:
            return _float(inner)
        if kind == "dtype":
            return _dtype(inner)
        if kind == "size" and _are_sizes(inner):
            return torch.Size(inner)
        if kind == "tensor" and type(inner) is list and len(inner) == 3:
            return self._tensor(*inner)
        if kind == "wrapped":
            return self._wrapped(self.value(inner, depth + 1))
        if kind in ("list", "tuple") and type(inner) is list:
            values = [self.value(item, depth + 1) for item in inner]
            return values if kind == "list" else tuple(values)
        if kind == "dict" and type(inner) is list:
            return self._dict(inner, depth)
        raise Unreadable(f"{_short(node)} is no node of a header")

    def _dict(self, pairs: list[Any], depth: int) -> dict[Any, Any]:
        found = {}
        for pair in pairs:
            if type(pair) is not list or len(pair) != 2 or type(pair[0]) not in _KEYS:
                raise Unreadable(f"{_short(pair)} is no entry of a dict")
            found[pair[0]] = self.value(pair[1], depth + 1)
        return found

    def _tensor(self, name: Any, shape: Any, at: Any) -> torch.Tensor:
        dtype = _dtype(name)
        if not _are_sizes(shape) or not _are_sizes([at]) or at % _ALIGN:
            raise Unreadable(f"a tensor of shape {_short(shape)} at {_short(at)}")
        end = at + math.prod(shape) * dtype.itemsize
        if end > len(self._data) or math.prod(n or 1 for n in shape) >= 1 << 60:
            raise Unreadable(f"a tensor of shape {shape} at {at} of {len(self._data)} bytes")
        return self._data[at:end].view(dtype).view(shape)

    def _wrapped(self, fields: Any) -> Any:
        try:
            name, parts, context, shape, strides = fields
            made: Any = getattr(importlib.import_module(_WRAPPERS[name]), name)
            return made.__tensor_unflatten__(parts, context, shape, tuple(strides))
        except Exception as error:  # of another package's class, given values that it never made
            raise Unreadable(f"no {_short(fields)} can be made: {error}") from error


def _float(digits: str) -> float:
    try:
        return float.fromhex(digits)
    except (ValueError, OverflowError) as error:
        raise Unreadable(f"{digits!r} is no float") from error


def _dtype(name: Any) -> torch.dtype:
    dtype = getattr(torch, name, None) if type(name) is str else None
    if not isinstance(dtype, torch.dtype):
        raise Unreadable(f"{_short(name)} is no dtype")
    return dtype


def _are_sizes(values: Any) -> TypeGuard[list[int]]:
    return type(values) is list and all(type(n) is int and 0 <= n < 1 << 60 for n in values)


def _short(value: Any) -> str:
    return f"{value!r:.60}"
