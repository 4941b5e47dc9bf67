"""BLAKE3 over framed values: lengths go before bytes, so that no two sequences of values encode
alike.

A tensor is framed as name, dtype, shape and its bytes (row-major, in this machine's byte order);
a tensor that is made of others (quantised ones, torch's wrapper subclasses) as those.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from kvstore._core import Blake3
from kvstore.errors import InvalidArgument

__all__ = ["SAMPLE", "Framed", "sample_spans", "tensor_bytes"]

#: Bytes that are copied from a device, or read from a file, at once.
CHUNK = 64 << 20
#: Bytes of a tensor that a sample takes, and of each of its pieces.
SAMPLE, _PIECE = 64 << 10, 4 << 10


class Framed:
    """A BLAKE3 hash of values, each with its type and length."""

    def __init__(self, domain: str, *, sampled: bool = False) -> None:
        """`domain` says what is hashed; with `sampled` only a sample of each tensor is."""
        self._hasher = Blake3()
        self._sampled = sampled
        self.text(domain)

    def digest(self) -> bytes:
        """The 32 bytes of the hash."""
        return self._hasher.digest()

    def number(self, number: int) -> None:
        """A whole number of up to 64 bits, not negative."""
        self._hasher.update(number.to_bytes(8, "little"))

    def bytes(self, data: bytes) -> None:
        """A string of bytes."""
        self.number(len(data))
        self._hasher.update(data)

    def text(self, text: str) -> None:
        """A string."""
        self.bytes(text.encode("utf-8", "surrogateescape"))

    def shaped(self, dtype: str, shape: tuple[int, ...], size: int) -> None:
        """What stands before a tensor's bytes: dtype, shape, and how many they are."""
        self.text(dtype)
        self.number(len(shape))
        for length in shape:
            self.number(length)
        self.number(size)

    def raw(self, pieces: Iterator[Any]) -> None:
        """Bytes whose number was framed before."""
        for piece in pieces:
            self._hasher.update(piece)

    def tensor(self, name: str, tensor: Any) -> None:
        """A torch tensor on any device, or a numpy array.

        InvalidArgument names one that has no bytes: on the meta device, or sparse.
        """
        if torch.is_tensor(tensor) and is_traceable_wrapper_subclass(tensor):
            inner, context = tensor.__tensor_flatten__()
            self.text(type(tensor).__qualname__)
            self.value(name, context)
            for attribute in sorted(inner):
                self.text(attribute)
                self.tensor(f"{name}.{attribute}", getattr(tensor, attribute))
            return
        if torch.is_tensor(tensor) and tensor.is_quantized:
            self.text(str(tensor.qscheme()))
            for part in _quantised(tensor):
                self.value(name, part)
            return
        flat = tensor_bytes(name, tensor)
        self.shaped(_dtype(tensor), tuple(tensor.shape), len(flat))
        spans = sample_spans(len(flat)) if self._sampled else chunks(len(flat))
        self.raw(_on_host(flat[first:last]) for first, last in spans)

    def value(self, name: str, value: Any) -> None:
        """A tensor, a module, a plain value, or a container of these.

        Of any other object only the class is hashed: its repr may hold an address.
        """
        if torch.is_tensor(value) or isinstance(value, np.ndarray):
            self.text("tensor")
            self.tensor(name, value)
        elif isinstance(value, torch.nn.Module):
            self.text(type(value).__qualname__)
            self.value(name, dict(value.state_dict()))
        elif isinstance(value, Mapping):
            self.text("mapping")
            self.number(len(value))
            for key in sorted(value, key=str):
                self.text(str(key))
                self.value(f"{name}.{key}", value[key])
        elif isinstance(value, set | frozenset):
            self.value(name, sorted(value, key=str))
        elif isinstance(value, list | tuple):
            self.text("sequence")
            self.number(len(value))
            for item in value:
                self.value(name, item)
        elif isinstance(value, enum.Enum):
            self.text(str(value))
        elif isinstance(value, bytes | bytearray | memoryview):
            self.text("bytes")
            self.bytes(bytes(value))
        elif value is None or isinstance(value, bool | int | float | complex | str):
            self.text(f"{type(value).__name__} {value!r}")
        elif isinstance(value, torch.dtype | torch.Size | torch.device | torch.layout):
            self.text(str(value))
        else:
            self.text(f"object {type(value).__module__}.{type(value).__qualname__}")


def _quantised(tensor: Any) -> list[Any]:
    """The integers and the scales of one of torch's own quantised tensors."""
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return [tensor.int_repr(), tensor.q_scale(), tensor.q_zero_point()]
    return [
        tensor.int_repr(),
        tensor.q_per_channel_scales(),
        tensor.q_per_channel_zero_points(),
        tensor.q_per_channel_axis(),
    ]


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def tensor_bytes(name: str, tensor: Any) -> Any:
    """A tensor's bytes in row-major order: uint8 [bytes], of the tensor's own kind and device."""
    if isinstance(tensor, np.ndarray):
        return np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
    if tensor.layout != torch.strided:
        raise InvalidArgument(f"tensor {name!r} is {tensor.layout}: a fingerprint takes dense ones")
    if tensor.device.type == "meta":
        raise InvalidArgument(f"tensor {name!r} is on the meta device: load the weights first")
    plain = tensor.detach().resolve_conj().resolve_neg()
    return plain.contiguous().reshape(-1).view(torch.uint8)


def _on_host(piece: Any) -> Any:
    return piece.cpu().numpy() if torch.is_tensor(piece) else piece


def chunks(size: int) -> list[tuple[int, int]]:
    """All of `size` bytes, as spans (first, last + 1) of at most `CHUNK`."""
    return [(first, min(first + CHUNK, size)) for first in range(0, size, CHUNK)]


def sample_spans(size: int) -> list[tuple[int, int]]:
    """`SAMPLE` of `size` bytes in even pieces from the first to the last, or all of fewer."""
    if size <= SAMPLE:
        return [(0, size)]
    count = SAMPLE // _PIECE
    starts = [(size - _PIECE) * i // (count - 1) for i in range(count)]
    return [(start, start + _PIECE) for start in starts]
