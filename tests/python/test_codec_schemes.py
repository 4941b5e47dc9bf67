"""Encoding and decoding through the Python surface: arrays in and out, errors, accuracy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from codec_vectors import Array
from hypothesis import given, settings
from hypothesis import strategies as st
from kvstore import codec

GAUSS = np.random.default_rng(7).standard_normal((2048, 128)).astype(np.float32)


def bf16(x: Array) -> Array:
    """bf16 bits, nearest even."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def values(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def sqnr(x: Array, y: Array) -> float:
    noise = float(((x.astype(np.float64) - y) ** 2).sum())
    return float(10 * np.log10((x.astype(np.float64) ** 2).sum() / noise)) if noise else np.inf


# The acceptance bands of bf16 Gaussian data, in dB.
BANDS = [
    ("fp8_e4m3.ue8m0.128", 31.5, 0.2),
    ("fp8_e4m3.ue8m0.64", 31.5, 0.2),
    ("mxfp8_e4m3.rceil", 31.5, 0.2),
    ("fp8_e4m3.raw_f32.128", 31.8, 0.2),
    ("mxfp6_e2m3.rceil", 30.9, 0.2),
    ("mxfp4.floor", 18.8, 0.2),
    ("mxfp4.even", 19.0, 0.2),
    ("mxfp4.rceil", 18.7, 0.2),
    ("nvfp4", 20.4, 0.2),
    ("nvfp4.4over6", 21.2, 0.2),
    ("int8.per_token_head", 43.8, 0.3),
]


@pytest.mark.parametrize(("preset", "wanted", "band"), BANDS)
def test_accuracy_is_inside_its_band(preset: str, wanted: float, band: float) -> None:
    x = bf16(GAUSS)
    back = codec.decode(codec.encode(x, preset, dtype="bf16"), dtype="fp32")
    assert sqnr(values(x), back) == pytest.approx(wanted, abs=band)


def test_presets_say_where_they_come_from() -> None:
    presets = codec.presets()
    assert len({p.name for p in presets}) == len(presets)
    assert all(p.engine and p.version and p.note for p in presets)
    assert codec.preset("mxfp4.floor").bits_per_element() == 4.25
    assert codec.preset("nvfp4").bits_per_element() == 4.5
    assert codec.preset("kivi_k.int4").bits_per_element() == 5
    with pytest.raises(ValueError, match=r"unknown preset \"fp9\"; known: fp8_e4m3\.raw_f32\.128"):
        codec.preset("fp9")


def test_the_floor_and_the_round_up_rule_on_seven() -> None:
    # B6-11: 32 values with maximum 7.
    x = np.full((1, 32), 7.0, np.float32)
    floor, rceil = codec.encode(x, "mxfp4.floor"), codec.encode(x, "mxfp4.rceil")
    assert (floor.scales[0, 0], rceil.scales[0, 0]) == (127, 128)
    assert codec.decode(floor, dtype="fp32")[0, 0] == 6.0
    assert codec.decode(rceil, dtype="fp32")[0, 0] == 8.0


def test_the_even_element_is_the_low_nibble() -> None:
    # B6-01.
    coded = codec.encode(np.array([[0.5, 1.0]], np.float32), "fp8_e4m3.static", scale=1.0)
    assert coded.codes.tolist() == [[0x30, 0x38]]
    x = np.zeros((1, 32), np.float32)
    x[0, :2] = [0.5, 1.0]
    x[0, 2] = 6.0
    assert codec.encode(x, "mxfp4.floor").codes[0, 0] == 0x21


@pytest.mark.parametrize(
    # Asymmetric integers and truncation are not meant to be idempotent.
    "preset",
    [p.name for p in codec.presets() if "kivi" not in p.name and "trunc" not in p.note],
)
def test_values_do_not_change_when_encoded_again(preset: str) -> None:
    found = codec.preset(preset)
    given: dict[str, Any] = {"scale": 0.5} if found.scale == "given" else {}
    if "global" in found.scale:
        given = {"global_scale": 0.5}
    x = bf16(GAUSS[:256])
    once = codec.decode(codec.encode(x, preset, dtype="bf16", **given), dtype="fp32")
    if "fp32" in found.scale or found.element == "int8" or "global" in found.scale:
        # The second scale is the first within a rounding.
        twice = codec.decode(codec.encode(once, preset, **given), dtype="fp32")
        np.testing.assert_allclose(twice, once, rtol=0.15, atol=0.2)
    else:
        twice = codec.decode(codec.encode(once, preset, **given), dtype="fp32")
        if "4over6" in preset or "round_up" in preset:
            assert sqnr(once, twice) > 18
        else:
            np.testing.assert_array_equal(twice, once)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_a_block_does_not_see_its_neighbours(rows: int, blocks: int, seed: int) -> None:
    x = bf16(np.random.default_rng(seed).standard_normal((rows, blocks * 32)))
    for preset in ("mxfp4.rceil", "mxfp8_e5m2.floor", "fp8_e4m3.ue8m0.32"):
        whole = codec.encode(x, preset, dtype="bf16")
        parts = x.reshape(-1, 32)
        alone = codec.encode(np.ascontiguousarray(parts[::-1]), preset, dtype="bf16")
        np.testing.assert_array_equal(alone.scales[::-1].reshape(whole.scales.shape), whole.scales)
        codes = alone.codes[::-1].reshape(whole.codes.shape)
        np.testing.assert_array_equal(codes, whole.codes)


@pytest.mark.parametrize(
    "preset", ["fp8_e4m3.ue8m0.128", "mxfp4.floor", "nvfp4", "mxfp6_e2m3.even"]
)
def test_source_types_agree_where_they_hold_the_same_numbers(preset: str) -> None:
    x = bf16(GAUSS[:64])
    wanted = codec.encode(x, preset, dtype="bf16")
    for source in (values(x), values(x).astype(np.float16).astype(np.float32)):
        same = codec.encode(bf16(source), preset, dtype="bf16")
        direct = codec.encode(source, preset)
        if np.array_equal(values(bf16(source)), source):
            np.testing.assert_array_equal(direct.codes, same.codes)
    np.testing.assert_array_equal(codec.encode(values(x), preset).codes, wanted.codes)


def test_ml_dtypes_in_and_out() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = bf16(GAUSS)
    coded = codec.encode(x.view(ml_dtypes.bfloat16), "fp8_e4m3.ue8m0.128")
    codes, scales = coded.ml_dtypes_views()
    assert (codes.dtype, scales.dtype) == (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu)
    product = codes.astype(np.float32) * scales.astype(np.float32).repeat(128, axis=1)
    back = codec.decode(coded)
    assert back.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(back.astype(np.float32), product)
    out = np.zeros(coded.shape, ml_dtypes.bfloat16)
    assert codec.decode(coded, out=out) is out
    np.testing.assert_array_equal(out.view(np.uint16), back.view(np.uint16))


@pytest.mark.torch
def test_torch_in_and_out() -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(GAUSS).to(torch.bfloat16)
    coded = codec.encode(x, "fp8_e4m3.ue8m0.128")
    codes, scales = coded.torch_views()
    assert (codes.dtype, scales.dtype) == (torch.float8_e4m3fn, torch.float8_e8m0fnu)
    out = torch.empty_like(x)
    assert codec.decode(coded, out=out) is out
    assert torch.equal(out.float(), codes.float() * scales.float().repeat_interleave(128, 1))
    codes, scales = codec.encode(x, "nvfp4").torch_views()
    assert (codes.dtype, scales.dtype) == (torch.float4_e2m1fn_x2, torch.float8_e4m3fn)
    with pytest.raises(ValueError, match=r"x: shape \(128, 2048\) with strides"):
        codec.encode(x.T, "mxfp4.floor")
    assert codec.encode(x.double().float().half(), "mxfp4.floor").shape == (2048, 128)
    with pytest.raises(TypeError, match="x: float64 given, bfloat16, float16 or float32 wanted"):
        codec.encode(x.double(), "mxfp4.floor")


@pytest.mark.torch
def test_live_torchao_agrees() -> None:
    torch = pytest.importorskip("torch")
    mx = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")
    config = pytest.importorskip("torchao.prototype.mx_formats.config")
    x = torch.from_numpy(GAUSS).to(torch.bfloat16)
    for name, preset in (
        ("FLOOR", "floor"),
        ("RCEIL", "rceil"),
        ("EVEN", "even"),
        ("CEIL", "ceil"),
    ):
        mode = getattr(config.ScaleCalculationMode, name)
        scale, codes = mx.to_mx(x, torch.float8_e4m3fn, 32, mode)
        ours = codec.encode(x, f"mxfp8_e4m3.{preset}")
        np.testing.assert_array_equal(ours.scales, scale.view(torch.uint8).numpy())
        np.testing.assert_array_equal(ours.codes, codes.view(torch.uint8).numpy())


def test_dlpack_and_plain_buffers_are_taken() -> None:
    class Exporter:
        def __init__(self, array: Array) -> None:
            self.array = array

        def __dlpack__(self, **kwargs: Any) -> object:
            return self.array.__dlpack__(**kwargs)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    wanted = codec.encode(GAUSS, "mxfp4.floor").codes
    np.testing.assert_array_equal(codec.encode(Exporter(GAUSS), "mxfp4.floor").codes, wanted)
    view = memoryview(GAUSS.tobytes()).cast("f", GAUSS.shape)
    np.testing.assert_array_equal(codec.encode(view, "mxfp4.floor").codes, wanted)


def test_outputs_can_be_the_callers() -> None:
    x = bf16(GAUSS)
    first = codec.encode(x, "nvfp4", dtype="bf16")
    again = codec.encode(x[::-1].copy(), "nvfp4", dtype="bf16", out=first)
    assert again.codes is first.codes
    np.testing.assert_array_equal(
        again.codes, codec.encode(x[::-1].copy(), "nvfp4", dtype="bf16").codes
    )
    with pytest.raises(ValueError, match=r"out: nvfp4 of shape .* given, mxfp4\.floor of shape"):
        codec.encode(x, "mxfp4.floor", dtype="bf16", out=first)


def test_levels_are_forced_and_unknown_ones_named() -> None:
    x = bf16(GAUSS)
    wanted = codec.encode(x, "mxfp4.even", dtype="bf16", level="scalar")
    for level in codec.levels():
        got = codec.encode(x, "mxfp4.even", dtype="bf16", level=level, threads=2)
        np.testing.assert_array_equal(got.codes, wanted.codes)
    with pytest.raises(ValueError, match=r"unknown level \"mmx\"; known: scalar, neon, avx2"):
        codec.encode(x, "mxfp4.even", dtype="bf16", level="mmx")
    assert codec.level() in codec.levels()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: codec.encode(GAUSS.astype(np.float64), "mxfp4.floor"),
            TypeError,
            "x: float64 given",
        ),
        (lambda: codec.encode(bf16(GAUSS), "mxfp4.floor"), TypeError, "say dtype='bf16' or 'fp16'"),
        (lambda: codec.encode([[1.0]], "mxfp4.floor"), TypeError, "x: list given"),
        (
            lambda: codec.encode(GAUSS[:, :100].copy(), "mxfp4.floor"),
            ValueError,
            "cols: 100 given, a multiple of 32 wanted by blocks of 1x32 e2m1",
        ),
        (
            lambda: codec.encode(GAUSS[:, ::2], "mxfp4.floor"),
            ValueError,
            r"x: shape \(2048, 64\) with strides \(512, 8\) given",
        ),
        (
            lambda: codec.encode(np.empty((0, 32), np.float32), "mxfp4.floor"),
            ValueError,
            r"x: shape \(0, 32\) given",
        ),
        (
            lambda: codec.encode(GAUSS, "fp8_e4m3.static"),
            ValueError,
            r"scale: 0 numbers given, 1, or one per block of a row \(1\) wanted",
        ),
        (
            lambda: codec.encode(GAUSS, "fp8_e4m3.static", scale=float("nan")),
            ValueError,
            r"scale\[0\]: NaN given, a finite number above 0 wanted",
        ),
        (
            lambda: codec.encode(GAUSS, "mxfp4.floor", scale=1.0),
            ValueError,
            "scale: 1 numbers given, none: this scheme stores its own scales wanted",
        ),
        (lambda: codec.encode(GAUSS, "nvfp4.global"), ValueError, "global_scale: none given"),
        (
            lambda: codec.encode(GAUSS, "nvfp4.global", global_scale=-1.0),
            ValueError,
            r"global_scale\[0\]: -1 given",
        ),
        (lambda: codec.encode(GAUSS, "nvfp4", global_scale=1.0), ValueError, "no second level"),
        (
            lambda: codec.decode(codec.encode(GAUSS, "nvfp4"), dtype="fp64"),
            ValueError,
            "dtype: 'fp64' given, one of bf16, fp16, fp32 wanted",
        ),
        (
            lambda: codec.decode(codec.encode(GAUSS, "nvfp4"), out=np.empty((2, 128), np.float32)),
            ValueError,
            r"out: shape \(2, 128\) given, \(2048, 128\) wanted",
        ),
        (
            lambda: codec.encode(GAUSS[:100].copy(), "kivi_k.int4"),
            ValueError,
            "rows: 100 given, a multiple of 32 wanted",
        ),
        (lambda: codec.cast(GAUSS, "e9m9"), ValueError, 'unknown element format "e9m9"; known:'),
        (lambda: codec.unpack_lossless(b"KVBP"), ValueError, "frame: 4 bytes, at least 12 wanted"),
    ],
)
def test_misuse_names_what_was_given_and_what_is_wanted(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


def test_read_only_and_misaligned_outputs_are_refused() -> None:
    coded = codec.encode(GAUSS, "nvfp4")
    out = np.empty(GAUSS.shape, np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out: read-only given"):
        codec.decode(coded, out=out)
    odd = np.empty(GAUSS.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(GAUSS.shape)
    with pytest.raises(ValueError, match="out: misaligned memory given, 4 bytes wanted"):
        codec.decode(coded, out=odd)
    shifted = np.empty(GAUSS.size + 32, np.uint16)
    start = (-shifted.ctypes.data % 64) // 2 + 1
    half = shifted[start : start + GAUSS.size].reshape(GAUSS.shape)
    with pytest.raises(ValueError, match="out: address ends 2 bytes past a multiple of 64"):
        codec.decode(coded, out=half, stores="stream")


def test_lossless_frames_and_their_report() -> None:
    x = bf16(GAUSS)
    frame = codec.pack_lossless(x)
    np.testing.assert_array_equal(codec.unpack_lossless(frame), x.reshape(-1))
    report = codec.lossless_report(x, object_bytes=1 << 18)
    assert report.raw_bytes == x.nbytes
    assert 0.6 < report.ratio_bytes < 0.75
    # A class is at most a sixteenth of the raw stride above the bytes.
    assert report.ratio_bytes <= report.ratio_slots <= report.ratio_bytes + 1 / 16
    noise = np.random.default_rng(0).integers(0, 2**16, 1 << 16).astype(np.uint16)
    assert codec.lossless_report(noise).ratio_slots == 1.0
    with pytest.raises(ValueError, match="frame"):
        codec.unpack_lossless(frame[:-1])
    lie = frame.copy()
    lie[4:8] = 255
    with pytest.raises(ValueError, match="frame: 262144 bytes in a plane, 4294967295 wanted"):
        codec.unpack_lossless(lie)


def test_the_gil_is_released() -> None:
    x = np.random.default_rng(0).standard_normal((1 << 13, 512)).astype(np.float32)
    ticks, stop = [0], threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks[0] += 1

    worker = threading.Thread(target=tick)
    worker.start()
    try:
        before = ticks[0]
        codec.encode(x, "kivi_v.int4", threads=1)
        assert ticks[0] > before + 1000
    finally:
        stop.set()
        worker.join()
