"""Arrays of numpy, torch, ml_dtypes and DLPack as plain numpy views, without copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Source and target number types, and the numpy type that holds their bits.
BITS: dict[str, type[np.generic]] = {"bf16": np.uint16, "fp16": np.float16, "fp32": np.float32}
_NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def is_torch(x: object) -> bool:
    """Whether x is a torch tensor, without importing torch."""
    return type(x).__module__.split(".")[0] == "torch" and hasattr(x, "data_ptr")


def _from_torch(x: Any, what: str) -> tuple[Array, str]:
    import torch

    if x.device.type != "cpu":
        raise ValueError(f"{what}: device {x.device} given, cpu wanted")
    name = str(x.dtype).removeprefix("torch.")
    x = x.detach()
    if not x.is_contiguous():
        raise ValueError(
            f"{what}: shape {tuple(x.shape)} with strides {x.stride()} given, C-contiguous wanted"
        )
    if x.dtype == torch.bfloat16:
        x = x.view(torch.int16)
    elif x.element_size() == 1 and x.dtype not in (torch.uint8, torch.int8):
        x = x.view(torch.uint8)
    array: Array = x.numpy()
    if name == "bfloat16":
        array = array.view(np.uint16)
    return array, name


def plain(x: Any, what: str) -> tuple[Array, str]:
    """A C-contiguous numpy view of x and the name of its element type.

    bfloat16 and the 8- and 4-bit floats come out as unsigned bits. Raises TypeError for what has
    neither the buffer protocol nor DLPack, ValueError for strides, devices and alignments that the
    codec does not take.
    """
    if is_torch(x):
        return _from_torch(x, what)
    if isinstance(x, np.ndarray):
        array: Array = x
    elif hasattr(x, "__dlpack__"):
        array = np.from_dlpack(x)
    else:
        try:
            array = np.asarray(memoryview(x))
        except TypeError:
            raise TypeError(
                f"{what}: {type(x).__name__} given, "
                "an array with the buffer protocol or DLPack wanted"
            ) from None
    name = array.dtype.name
    if not array.flags.c_contiguous:
        raise ValueError(
            f"{what}: shape {array.shape} with strides {array.strides} given, C-contiguous wanted"
        )
    if not array.flags.aligned:
        raise ValueError(f"{what}: misaligned memory given, {array.dtype.itemsize} bytes wanted")
    if array.dtype.byteorder == ">":
        raise ValueError(f"{what}: big-endian {name} given, little-endian wanted")
    if array.dtype.kind == "V" or name not in np.sctypeDict:
        # ml_dtypes: the buffer protocol does not know these, their bits it does.
        array = array.view({1: np.uint8, 2: np.uint16}.get(array.dtype.itemsize, np.uint8))
    return array, name


def numbers(x: Any, what: str, dtype: str | None) -> tuple[Array, str]:
    """A view of x and which of bf16, fp16 and fp32 it holds.

    `dtype` says what uint16 bits are; elsewhere it must agree with the array.
    """
    array, name = plain(x, what)
    found = _NAMES.get(name)
    if found is None and name in ("uint16", "int16") and dtype in ("bf16", "fp16"):
        return array.view(np.uint16), dtype
    if found is None:
        hint = "; say dtype='bf16' or 'fp16' for bits" if name in ("uint16", "int16") else ""
        raise TypeError(f"{what}: {name} given, bfloat16, float16 or float32 wanted{hint}")
    if dtype is not None and dtype != found:
        raise TypeError(f"{what}: {name} given, dtype {dtype!r} asked for")
    return array, found


def octets(x: Any, what: str) -> Array:
    """A view of x as uint8, whatever its elements are."""
    array, _ = plain(x, what)
    return array.view(np.uint8) if array.ndim else array.reshape(1).view(np.uint8)


def empty_aligned(shape: tuple[int, ...], dtype: type[np.generic]) -> Array:
    """An uninitialised array whose memory is 64-byte aligned, as streamed stores want it."""
    itemsize = np.dtype(dtype).itemsize
    count = int(np.prod(shape, dtype=np.int64))
    memory = np.empty(count * itemsize + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + count * itemsize].view(dtype).reshape(shape)
