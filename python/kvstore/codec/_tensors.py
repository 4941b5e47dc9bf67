"""Tensor files as bf16 rows: .npy, .npz, .safetensors, and .pt where torch is installed."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kvstore.codec._arrays import plain
from kvstore.models import safetensors

Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint16]
Array = npt.NDArray[Any]

SUFFIXES = (".npy", ".npz", ".safetensors", ".pt", ".pth")


def to_bf16(x: Floats) -> Words:
    """bf16 bits, nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), 0x7FC0, rounded).astype(np.uint16)


def from_bf16(words: Words) -> Floats:
    """fp32 of bf16 bits."""
    return (words.astype(np.uint32) << 16).view(np.float32)


def read(path: Path, dtype: str | None = None, tensor: str | None = None) -> Words:
    """One tensor of a file as bf16 rows of its last dimension.

    `dtype` (bf16, fp16) says what 16-bit integers are: bf16 bits by default. `tensor` names one
    where the file holds several. Raises OSError where the file cannot be opened and ValueError,
    naming the file, where it is none of `SUFFIXES`, is damaged, or holds no such tensor of floats.
    """
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: a file that ends in {', '.join(SUFFIXES)} wanted")
    tensors = _load(path, tensor)
    if isinstance(tensors, Mapping):
        array = np.asarray(tensors[_pick(path, list(tensors), tensor)])
    elif tensor is not None:
        raise ValueError(f"{path}: --tensor {tensor} given, but its one tensor has no name")
    else:
        array = tensors
    return _rows(path, array, dtype)


def _pick(path: Path, names: list[str], tensor: str | None) -> str:
    """The name asked for, or the only one."""
    known = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    if tensor is None and len(names) == 1:
        return names[0]
    if tensor is None:
        raise ValueError(f"{path}: holds {len(names)} tensors, --tensor NAME wanted; {known}")
    if tensor not in names:
        raise ValueError(f"{path}: --tensor {tensor} is not in it; it holds {known}")
    return tensor


def _load(path: Path, tensor: str | None) -> Array | Mapping[str, Array]:
    if path.suffix == ".safetensors":
        return safetensors.read(path).tensors
    if path.suffix in (".pt", ".pth"):
        return _torch(path)
    # Opened here: numpy leaves open what it refuses.
    with path.open("rb") as file:
        try:
            loaded = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path}: not a numpy file: {error}") from error
        if isinstance(loaded, np.ndarray):
            return loaded
        name = _pick(path, loaded.files, tensor)
        return {name: loaded[name]}


def _torch(path: Path) -> Array | Mapping[str, Array]:
    """Tensors saved by torch; nothing in the file is run (`weights_only`)."""
    try:
        import torch
    except ImportError:
        raise ValueError(f"{path}: torch is not installed; pip install torch") from None
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path}: not a file of torch tensors: {reason}") from error
    if isinstance(loaded, torch.Tensor):
        return plain(loaded.contiguous(), str(path))[0]
    if isinstance(loaded, Mapping):
        found = {k: v for k, v in loaded.items() if isinstance(v, torch.Tensor)}
        if found:
            return {str(k): plain(v.contiguous(), f"{path}: {k}")[0] for k, v in found.items()}
    raise ValueError(f"{path}: {type(loaded).__name__} given, a tensor or a dict of them wanted")


def _rows(path: Path, array: Array, dtype: str | None) -> Words:
    if array.ndim == 0 or array.size == 0:
        raise ValueError(f"{path}: shape {array.shape} given, at least one row wanted")
    array = np.ascontiguousarray(array).reshape(-1, array.shape[-1])
    if array.dtype.itemsize == 2 and array.dtype.kind in "uiV":
        words: Words = array.view(np.uint16)
        if dtype == "fp16":
            return to_bf16(words.view(np.float16).astype(np.float32))
        return words
    if array.dtype.kind != "f":
        raise ValueError(f"{path}: {array.dtype} given, floats or bf16 bits wanted")
    return to_bf16(array.astype(np.float32))
