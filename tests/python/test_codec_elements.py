"""Element formats: all bf16 and fp16 patterns and the probes of the golden vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codec_vectors import Array, load
from kvstore import codec

FLOATS = ["e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e2m1", "e2m3", "e3m2"]
ALL_BITS = np.arange(65536, dtype=np.uint16)


def source(dtype: str) -> Array:
    if dtype == "f32":
        return load("elements")["f32_in_bits"].view(np.float32)
    return ALL_BITS


def values(dtype: str) -> Array:
    if dtype == "f32":
        return source(dtype)
    if dtype == "fp16":
        return ALL_BITS.view(np.float16).astype(np.float32)
    return (ALL_BITS.astype(np.uint32) << 16).view(np.float32)


def cast(dtype: str, element: str, overflow: Any = "saturate") -> Array:
    kind = None if dtype == "f32" else dtype
    return codec.cast(source(dtype), element, dtype=kind, overflow=overflow)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "f32"])
@pytest.mark.parametrize("element", FLOATS)
def test_every_oracle_agrees_on_numbers(element: str, dtype: str) -> None:
    golden = load("elements")
    number = ~np.isnan(values(dtype))
    # What each oracle does above the largest code; torch's E4M3 saturates, its others do not.
    oracles = {
        f"mldtypes_{element}": "special",
        f"torch_{element}": "saturate" if element == "e4m3fn" else "special",
        f"nvhdr_{element}_satfinite": "saturate",
        f"nvhdr_{element}_nosat": "special",
    }
    seen = 0
    for oracle, overflow in oracles.items():
        wanted = golden.get(f"{oracle}_{dtype}")
        if wanted is None:
            continue
        seen += 1
        codes = cast(dtype, element, overflow=overflow)
        np.testing.assert_array_equal(codes[number], wanted[number], err_msg=oracle)
    assert seen >= 1


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "f32"])
@pytest.mark.parametrize("element", FLOATS)
def test_nan_is_nvidias(element: str, dtype: str) -> None:
    golden = load("elements")
    # NVIDIA has no FNUZ, where there is only one NaN.
    oracle = "torch_{}" if element.endswith("fnuz") else "nvhdr_{}_satfinite"
    wanted = golden[f"{oracle.format(element)}_{dtype}"]
    nan = np.isnan(values(dtype))
    np.testing.assert_array_equal(cast(dtype, element)[nan], wanted[nan])


@pytest.mark.parametrize("element", FLOATS)
def test_every_code_decodes_as_the_oracles_do(element: str) -> None:
    wanted = load("elements")[f"decode_{element}"]
    got = codec.uncast(np.arange(len(wanted), dtype=np.uint8), element)
    np.testing.assert_array_equal(got, wanted)
    finite = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got)[finite], np.signbit(wanted)[finite])


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "f32"])
def test_e8m0_of_every_pattern(dtype: str) -> None:
    golden, x = load("elements"), values(dtype)
    ways: dict[str, tuple[Any, Any]] = {
        "torch_e8m0": ("nearest", "special"),
        "nvhdr_e8m0_rp_satfinite": ("up", "saturate"),
        "nvhdr_e8m0_rz_satfinite": ("down", "saturate"),
    }
    for oracle, (toward, overflow) in ways.items():
        got = codec.e8m0_encode(x, toward=toward, overflow=overflow)
        np.testing.assert_array_equal(got, golden[f"{oracle}_{dtype}"], err_msg=oracle)
    # ml_dtypes makes zero and negative numbers NaN, which no scale is.
    positive = x > 0
    got = codec.e8m0_encode(x, overflow="special")
    np.testing.assert_array_equal(got[positive], golden[f"mldtypes_e8m0_{dtype}"][positive])
    np.testing.assert_array_equal(codec.e8m0_decode(np.arange(256)), golden["decode_e8m0"])


def test_live_ml_dtypes_agrees_in_range() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    names = {
        "e4m3fn": "float8_e4m3fn",
        "e5m2": "float8_e5m2",
        "e2m1": "float4_e2m1fn",
        "e2m3": "float6_e2m3fn",
        "e3m2": "float6_e3m2fn",
    }
    for element, name in names.items():
        wanted = x.astype(getattr(ml_dtypes, name)).view(np.uint8)
        mask = {"e2m1": 0xF, "e2m3": 0x3F, "e3m2": 0x3F}.get(element, 0xFF)
        np.testing.assert_array_equal(codec.cast(x, element), wanted & mask)


@pytest.mark.torch
def test_live_torch_agrees() -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(np.random.default_rng(1).standard_normal(100_000).astype(np.float32))
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        y = x.to(dtype)
        for element, name in (("e4m3fn", "float8_e4m3fn"), ("e5m2", "float8_e5m2")):
            wanted = y.to(getattr(torch, name)).view(torch.uint8).numpy()
            np.testing.assert_array_equal(codec.cast(y, element), wanted)
