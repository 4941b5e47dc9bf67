"""Every array of the golden vectors through its preset, apart from the departures their README
lists; each exception below says which."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from codec_vectors import Array, Rows, load, nibbles
from kvstore import codec

SOURCES = ["bf16", "f32"]


def encode(rows: Rows, preset: str, mask: Array | None = None, **given: Any) -> tuple[Array, Array]:
    x = rows.x if mask is None else rows.x[mask]
    coded = codec.encode(x, preset, dtype="bf16" if rows.dtype == "bf16" else None, **given)
    return coded.codes, coded.scales


def per_element(packed: Array, cols: int) -> Array:
    return nibbles(packed) if packed.shape[-1] * 2 == cols else packed


def check(
    rows: Rows, preset: str, codes: Array, scales: Array, block: int, except_rows: Array
) -> None:
    """Scales of all blocks, codes of all finite elements; of no element beside a NaN."""
    got_codes, got_scales = encode(rows, preset)
    keep = ~except_rows
    np.testing.assert_array_equal(got_scales[keep], scales[keep], err_msg=f"{preset}: scales")
    number = ~np.isnan(rows.blocks(block)).any(-1) & keep[:, None]
    cols = rows.values.shape[1]
    compare = np.repeat(number, block, axis=1) & np.isfinite(rows.values)
    got, wanted = per_element(got_codes, cols), per_element(codes, cols)
    np.testing.assert_array_equal(got[compare], wanted[compare], err_msg=f"{preset}: codes")


def upulp(rows: Rows) -> Array:
    """fp32 rows one ulp above a power of two, where ceil(log2) in fp32 is one code low."""
    names = rows.names + [""] * (len(rows.x) - len(rows.names))
    return np.array([rows.dtype == "f32" and name.endswith("upulp32") for name in names])


@pytest.mark.parametrize("dtype", SOURCES)
@pytest.mark.parametrize("mode", ["floor", "rceil", "even", "ceil"])
@pytest.mark.parametrize(
    "format", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4"]
)
def test_torchao_mx(format: str, mode: str, dtype: str) -> None:
    golden, rows = load("mx_torchao"), Rows(dtype)
    preset = f"{format}.{mode}" + (".unpacked" if "fp6" in format else "")
    codes = golden[f"torchao_{format}_{mode}_codes_{dtype}"]
    scales = golden[f"torchao_{format}_{mode}_scale_{dtype}"]
    # Scale code 0: it divides by another number than it decodes with.
    departs = (scales == 0).any(1) & (rows.values != 0).any(1)
    # ceil(log2) in fp32, one ulp above a power of two.
    if mode == "rceil":
        departs |= upulp(rows)
    assert departs.sum() < 80
    check(rows, preset, codes, scales, 32, departs)
    # The dequantised bits, from the library's own bytes.
    dequantised = golden.get(f"torchao_{format}_{mode}_dequant_bf16bits_{dtype}")
    if dequantised is not None:
        coded = codec.encode(rows.x, preset, dtype="bf16" if dtype == "bf16" else None)
        coded.codes[:], coded.scales[:] = codes, scales
        got = np.asarray(codec.decode(coded)).view(np.uint16)
        poisoned = np.repeat(scales == 255, 32, axis=1)
        assert (got[poisoned] == 0x7FC0).all()
        np.testing.assert_array_equal(got[~poisoned], dequantised[~poisoned])


@pytest.mark.parametrize("dtype", SOURCES)
@pytest.mark.parametrize(
    ("library", "preset", "block"),
    [
        ("mlx_mxfp8", "mxfp8_e4m3.mlx", 32),
        ("mlx_mxfp4", "mxfp4.mlx", 32),
        ("modelopt_mxfp8", "mxfp8_e4m3.modelopt", 32),
        ("modelopt_mxfp4", "mxfp4.modelopt", 32),
        ("deepgemm_fp8_ue8m0_g32", "fp8_e4m3.ue8m0.32.deepgemm", 32),
        ("deepgemm_fp8_ue8m0_g128", "fp8_e4m3.ue8m0.128.deepgemm", 128),
        ("deepgemm_fp4_ue8m0_g32", "fp4.ue8m0.32.deepgemm", 32),
        ("deepgemm_fp4_ue8m0_g128", "fp4.ue8m0.128.deepgemm", 128),
        ("tilekernels_e4m3_ue8m0_g32", "fp8_e4m3.ue8m0.32.tilekernels", 32),
        ("tilekernels_e4m3_ue8m0_g128", "fp8_e4m3.ue8m0.128.tilekernels", 128),
        ("tilekernels_e2m1_ue8m0_g32", "fp4.ue8m0.32.tilekernels", 32),
        ("tilekernels_e2m1_ue8m0_g128", "fp4.ue8m0.128.tilekernels", 128),
    ],
)
def test_other_power_of_two_writers(library: str, preset: str, block: int, dtype: str) -> None:
    golden, rows = load("mx_others"), Rows(dtype)
    codes, scales = golden[f"{library}_codes_{dtype}"], golden[f"{library}_scale_{dtype}"]
    departs = np.zeros(len(rows.x), bool)
    if library.startswith("mlx"):
        # Its scale wraps around below 2^-118, and is not meant for Inf and NaN.
        amax = np.abs(rows.values).max(1)
        departs = ((rows.values != 0).any(1) & ~(amax >= 2.0**-118)) | ~np.isfinite(amax)
        departs |= rows.named("subnormals_only")
    if library.startswith("modelopt"):
        departs |= upulp(rows)
    if library == "modelopt_mxfp4":
        # It writes +0 as code 8 and -0 as code 8: the sign of zero is not compared.
        flat = nibbles(codes)
        flat[flat == 8] = 0
        got_codes, got_scales = encode(rows, preset)
        got = nibbles(got_codes)
        got[got == 8] = 0
        keep = ~departs & np.isfinite(rows.values).all(1)
        np.testing.assert_array_equal(got_scales[~departs], scales[~departs])
        np.testing.assert_array_equal(got[keep], flat[keep])
        return
    assert departs.sum() < 30
    check(rows, preset, codes, scales, block, departs)


@pytest.mark.parametrize("dtype", SOURCES)
def test_compressed_tensors_scales_are_the_even_rule(dtype: str) -> None:
    golden, rows = load("mx_others"), Rows(dtype)
    # bits8 uses FP4's mantissa width for FP8, bits4 and bits6 are the rule; zero blocks are -inf
    # before the cast and fp32's largest overflows.
    for bits, preset in ((4, "mxfp4.even"), (6, "mxfp6_e2m3.even")):
        wanted = golden[f"compressedtensors_mx_scale_bits{bits}_{dtype}"]
        amax = np.abs(rows.blocks(32)).max(-1)
        normal = (amax >= 2.0**-100) & (amax < 2.0**127)
        _, got = encode(rows, preset)
        np.testing.assert_array_equal(got[normal], wanted[normal])


@pytest.mark.parametrize("dtype", SOURCES)
def test_deepgemm_packs_four_scales_into_an_int32(dtype: str) -> None:
    rows = Rows(dtype)
    _, scales = encode(rows, "fp4.ue8m0.32.deepgemm")
    wanted = load("mx_others")[f"deepgemm_fp4_packed_ue8m0_int32_{dtype}"]
    np.testing.assert_array_equal(np.ascontiguousarray(scales).view("<i4"), wanted)


@pytest.mark.parametrize("dtype", SOURCES)
def test_nvfp4(dtype: str) -> None:
    golden, rows = load("nvfp4"), Rows(dtype)
    # Rows with a non-finite or huge value were zeroed before quantising, except by MLX.
    finite = golden[f"finite_rows_{dtype}"]
    rows.x = np.where(finite[:, None], rows.x, rows.x.dtype.type(0))
    g0, g1 = float(golden["g0"]), float(golden["g1"])
    cases: list[tuple[str, str, dict[str, float]]] = [
        ("torchao_nvfp4_noglobal", "nvfp4.torchao", {}),
        ("torchao_nvfp4_g0", "nvfp4.torchao.global", {"global_scale": g0}),
        ("torchao_nvfp4_g1", "nvfp4.torchao.global", {"global_scale": g1}),
        ("modelopt_nvfp4_g1", "nvfp4.modelopt.global", {"global_scale": 1.0}),
        ("mlx_nvfp4", "nvfp4.mlx", {}),
        ("sglang_fp4mxblock16", "fp4.ue8m0.16", {}),
    ]
    for library, preset, given in cases:
        codes, scales = encode(rows, preset, None, **given)
        keep = finite.copy()
        if library.startswith("mlx"):
            keep &= ~rows.named("amax_pow2_60")  # its cast of a number far above 6 x 448 is 0
        if library.startswith("sglang"):
            keep &= ~upulp(rows)
        wanted = golden[f"{library}_scale_{dtype}"]
        np.testing.assert_array_equal(scales[keep], wanted[keep], err_msg=f"{library}: scales")
        got, want = nibbles(codes), nibbles(golden[f"{library}_codes_{dtype}"])
        np.testing.assert_array_equal(got[keep], want[keep], err_msg=f"{library}: codes")


@pytest.mark.parametrize("dtype", SOURCES)
def test_compressed_tensors_global_scale_is_an_inverse(dtype: str) -> None:
    golden, rows = load("nvfp4"), Rows(dtype)
    inverse = golden[f"compressedtensors_global_scale_{dtype}"]
    amax = np.abs(rows.values).max(1)
    usable = np.isfinite(amax) & (amax > 2.0**-60) & (amax < 2.0**60)
    np.testing.assert_allclose(inverse[usable] * amax[usable], 2688.0, rtol=1e-6)
    for index in np.nonzero(usable)[0][::40]:
        x = np.ascontiguousarray(rows.x[index : index + 1])
        kind = None if dtype == "f32" else dtype
        coded = codec.encode(x, "nvfp4.inverse", dtype=kind, global_scale=float(inverse[index]))
        back = codec.decode(coded, dtype="fp32")
        assert np.abs(back).max() == pytest.approx(amax[index], rel=0.13)


@pytest.mark.parametrize("dtype", SOURCES)
def test_fp8_with_fp32_scale(dtype: str) -> None:
    golden, rows = load("fp8_f32scale"), Rows(dtype)
    number = np.asarray(np.isfinite(rows.values).all(axis=1))
    cases = [
        ("deepgemm_fp8_f32scale_g128", "fp8_e4m3.raw_f32.128.deepgemm"),
        ("tilekernels_e4m3_f32scale_g128", "fp8_e4m3.raw_f32.128.tilekernels"),
        ("deepgemm_fp8_f32scale_128x128", "fp8_e4m3.raw_f32.128x128"),
        ("deepgemm_fp8_f32scale_perchannel128", "fp8_e4m3.raw_f32.channel128"),
    ]
    for library, preset in cases:
        codes = golden[f"{library}_codes_{dtype}"]
        scales = golden[f"{library}_scale_{dtype}"]
        x, keep = rows.x[: len(codes)], number[: len(codes)]
        if "g128" not in library:
            # Blocks across rows were made with the rows of Inf and NaN zeroed.
            x = np.where(keep[:, None], x, x.dtype.type(0))
        coded = codec.encode(x, preset, dtype=None if dtype == "f32" else dtype)
        np.testing.assert_array_equal(coded.scales, scales.reshape(coded.scales.shape), library)
        np.testing.assert_array_equal(coded.codes[keep], codes[keep], library)


def test_int8() -> None:
    golden = load("int")
    x = golden["in_bf16bits"]
    coded = codec.encode(x, "int8.per_channel", dtype="bf16")
    np.testing.assert_array_equal(coded.scales[0], golden["torch_perchannel_sym_scale_f32"])
    for library in ("torch", "onnx"):
        np.testing.assert_array_equal(
            coded.codes.view(np.int8), golden[f"{library}_perchannel_sym_codes"], library
        )
    np.testing.assert_array_equal(
        codec.decode(coded, dtype="fp32"), golden["torch_perchannel_sym_dequant"]
    )
    heads = codec.encode(x.reshape(64, 2, 128), "int8.per_token_head", dtype="bf16")
    np.testing.assert_array_equal(heads.scales.reshape(64, 2), golden["perhead_scale_f32"])
    np.testing.assert_array_equal(
        heads.codes.reshape(64, 256).view(np.int8), golden["onnx_perhead_sym_codes"]
    )


@pytest.mark.parametrize("bits", ["int8", "int4", "int2"])
def test_kivi(bits: str) -> None:
    golden = load("int")
    x = golden["kivi_in_f16bits"].view(np.float16)
    for head in range(x.shape[1]):
        tokens = np.ascontiguousarray(x[0, head])
        keys = codec.encode(tokens, f"kivi_k.{bits}")
        values = codec.encode(tokens, f"kivi_v.{bits}")
        for side, coded in (("k", keys), ("v", values)):
            words = golden[f"kivi_{side}_{bits}_codes32"][0, head]
            scale = golden[f"kivi_{side}_{bits}_scale_f16"][0, head].reshape(coded.scales.shape)
            minimum = golden[f"kivi_{side}_{bits}_min_f16"][0, head].reshape(coded.mins.shape)
            # A few groups have an infinity, or a range below fp16's: its NaN differ by machine.
            np.testing.assert_array_equal(coded.scales == 0, scale == 0, side)
            usable = np.isfinite(scale) & (scale > 0)
            assert (~usable).sum() <= 8
            np.testing.assert_array_equal(coded.scales[usable], scale[usable], side)
            np.testing.assert_array_equal(coded.mins[usable], minimum[usable], side)
            rows, cols = tokens.shape
            per_row, per_col = rows // scale.shape[0], cols // scale.shape[1]
            spread = np.repeat(np.repeat(usable, per_row, 0), per_col, 1)
            got = coded.codes.view("<i4")
            spread_words = spread[:: rows // got.shape[0], :: cols // got.shape[1]]
            np.testing.assert_array_equal(got[spread_words], words[spread_words], side)
            error = np.abs(codec.decode(coded, dtype="fp32") - tokens.astype(np.float32))
            step = np.repeat(np.repeat(scale.astype(np.float32), per_row, 0), per_col, 1)
            # Half a step, and the roundings of fp16 arithmetic.
            size = np.abs(tokens.astype(np.float32)) + step * 2 ** int(bits[3:])
            assert (error[spread] <= (0.5 * step + size / 500)[spread]).all()


def pages(name: str) -> Array:
    return load("kv_pages")[name]


def test_flashmla_v32_records() -> None:
    rows = pages("v32_in_bf16bits")
    got = codec.pack(
        rows,
        "fp8_ds_mla",
        entries=16,
    )
    np.testing.assert_array_equal(got.reshape(2, 16, 656), pages("flashmla_v32_656B_bytes"))
    back = codec.unpack(got, "fp8_ds_mla", entries=16, count=32)
    np.testing.assert_array_equal(back.reshape(rows.shape), pages("flashmla_v32_dequant_bf16bits"))


def test_flashmla_v4_pages() -> None:
    rows = pages("v4_in_bf16bits")
    got = codec.pack(rows, "v4_main.flashmla", entries=64)
    np.testing.assert_array_equal(got, pages("flashmla_model1_584B_block_bytes"))
    back = codec.unpack(got, "v4_main.flashmla", entries=64, count=128)
    np.testing.assert_array_equal(
        back.reshape(rows.shape), pages("flashmla_model1_dequant_bf16bits")
    )


@pytest.mark.parametrize(
    ("format", "name"), [("v41_window.sglang", "sglang_v41"), ("v41_main.split", "sglang_v41fp4")]
)
def test_sglang_v41_pages(format: str, name: str) -> None:
    rows = pages("v4_in_bf16bits")
    got = codec.pack(rows, format, entries=64)
    np.testing.assert_array_equal(got, pages(f"{name}_pages"))
    back = codec.unpack(got, format, entries=64, count=128)
    np.testing.assert_array_equal(back.reshape(rows.shape), pages(f"{name}_dequant_bf16bits"))


def test_every_array_is_used() -> None:
    """A list of what this file and the element tests read, so that no array is passed over."""
    block = re.compile(
        r"torchao_mxfp|mlx_|modelopt_|deepgemm_|tilekernels_|compressedtensors_|torchao_nvfp4|sglang_|"
        r"finite_rows|g0$|g1$|in_bf16bits|torch_perchannel|perhead|onnx_|kivi_|v32_in|v4_in|flashmla_|"
        r"bf16_in_bits|f32_in_bits|edge_names|mldtypes_|torch_e|nvhdr_|decode_"
    )
    for archive in (
        "elements",
        "block_inputs",
        "mx_torchao",
        "mx_others",
        "nvfp4",
        "fp8_f32scale",
        "kv_pages",
        "int",
    ):
        for key in load(archive):
            assert block.match(key), f"{archive}: {key} is read by no test"
