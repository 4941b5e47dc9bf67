"""The same conversions by other libraries, one thread each, where they are importable."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Peer:
    """One conversion by one library."""

    bench: str
    path: str
    work: Callable[[], object]
    # Share of the source that the work converts: slow libraries get less.
    share: float


def _tensor(x: Words, share: float) -> Any:
    import torch

    torch.set_num_threads(1)
    part = x[: int(len(x) * share)]
    return torch.from_numpy(part.view(np.int16)).view(torch.bfloat16)


def _quantise(x: Any) -> Any:
    """fp8 with an fp32 scale per 128, as engines write it in PyTorch."""
    import torch

    blocks = x.view(-1, 128).float()
    scale = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448.0
    return (blocks / scale).to(torch.float8_e4m3fn), scale


def _dequantise(codes: Any, scale: Any) -> Any:
    import torch

    return (codes.float() * scale).to(torch.bfloat16)


def torch_eager(x: Words) -> Iterator[Peer]:
    """PyTorch's casts into preallocated outputs, and its eager scale per 128."""
    import torch

    path = f"torch {torch.__version__}"
    whole = _tensor(x, 1.0)
    codes = torch.empty(whole.shape, dtype=torch.float8_e4m3fn)
    back = torch.empty_like(whole)
    yield Peer("encode fp8_e4m3, bare cast", path, lambda: codes.copy_(whole), 1.0)
    part = _tensor(x, 1 / 8)
    part_codes, part_back = codes[: len(part)], back[: len(part)]
    yield Peer("decode fp8_e4m3, bare cast", path, lambda: part_back.copy_(part_codes), 1 / 8)
    yield Peer("encode fp8_e4m3.raw_f32.128", f"{path} eager", lambda: _quantise(part), 1 / 8)
    blocks, scale = _quantise(part)
    yield Peer(
        "decode fp8_e4m3.raw_f32.128", f"{path} eager", lambda: _dequantise(blocks, scale), 1 / 8
    )


def torch_compiled(x: Words) -> Iterator[Peer]:
    """The same through torch.compile."""
    import torch

    path = f"torch.compile {torch.__version__}"
    part = _tensor(x, 1 / 2)
    encode = torch.compile(_quantise)
    codes, scale = encode(part)
    yield Peer("encode fp8_e4m3.raw_f32.128", path, lambda: encode(part), 1 / 2)
    decode = torch.compile(_dequantise)
    decode(codes, scale)
    yield Peer("decode fp8_e4m3.raw_f32.128", path, lambda: decode(codes, scale), 1 / 2)


def torchao(x: Words) -> Iterator[Peer]:
    """torchao's eager MX and NVFP4 casts."""
    import torch

    # Imported by name: it has no types.
    version = importlib.import_module("torchao").__version__
    formats = "torchao.prototype.mx_formats"
    MXTensor = importlib.import_module(f"{formats}.mx_tensor").MXTensor
    NVFP4Tensor = importlib.import_module(f"{formats}.nvfp4_tensor").NVFP4Tensor
    path = f"torchao {version} eager"
    part = _tensor(x, 1 / 32).view(-1, 512)
    for bench, element in (
        ("mxfp8_e4m3", torch.float8_e4m3fn),
        ("mxfp4", torch.float4_e2m1fn_x2),
    ):
        coded = MXTensor.to_mx(part, element, 32)

        def encode(element: Any = element) -> object:
            return MXTensor.to_mx(part, element, 32)

        def decode(coded: Any = coded) -> object:
            return coded.dequantize(torch.bfloat16)

        yield Peer(f"encode {bench}", path, encode, 1 / 32)
        yield Peer(f"decode {bench}", path, decode, 1 / 32)
    nv = NVFP4Tensor.to_nvfp4(part)
    yield Peer("encode nvfp4", path, lambda: NVFP4Tensor.to_nvfp4(part), 1 / 32)
    yield Peer("decode nvfp4", path, lambda: nv.dequantize(torch.bfloat16), 1 / 32)


def ml_dtypes(x: Words) -> Iterator[Peer]:
    """ml_dtypes' casts without a scale."""
    import ml_dtypes as m

    path = f"ml_dtypes {m.__version__}"
    part = x[: len(x) // 16].view(m.bfloat16)
    codes = part.astype(m.float8_e4m3fn)
    yield Peer("encode fp8_e4m3, bare cast", path, lambda: part.astype(m.float8_e4m3fn), 1 / 16)
    yield Peer("decode fp8_e4m3, bare cast", path, lambda: codes.astype(m.bfloat16), 1 / 16)
    yield Peer("encode e2m1, unpacked", path, lambda: part.astype(m.float4_e2m1fn), 1 / 16)


PEERS: dict[str, Callable[[Words], Iterator[Peer]]] = {
    "torch": torch_eager,
    "torch.compile": torch_compiled,
    "torchao": torchao,
    "ml_dtypes": ml_dtypes,
}
