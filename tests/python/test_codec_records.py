"""Records and pages: the 13 SHA-256 vectors, made again by an independent generator, and moves."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from codec_vectors import Array
from kvstore import codec


def make_golden() -> ModuleType:
    pytest.importorskip("ml_dtypes")
    path = Path(__file__).resolve().parents[1] / "golden" / "codec" / "make_golden.py"
    spec = importlib.util.spec_from_file_location("make_golden", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(count: int, dim: int, stream: int = 0) -> Array:
    """The synthetic rows as bf16 bits."""
    values = np.stack([make_golden().row(k, dim, stream) for k in range(count)])
    return (values.view(np.uint32) >> 16).astype(np.uint16)


# (format, entries, dim, stream, SHA-256, first 8 bytes, last 8 bytes)
VECTORS = [
    (
        "fp8_ds_mla.raw",
        1,
        576,
        0,
        "ca56425a0a1cb641269c241f64b3712771dbd1bc608cc52d04033d85b2e8b836",
        "3ec74aadcc44c24d",
        "bcbe813e06befa3e",
    ),
    (
        "fp8_ds_mla",
        1,
        576,
        0,
        "6b9be4bfcef32143e50b1a64ae900ed64a08328f09dd27ec28f904d6dad30faa",
        "37c043a6c53dbb46",
        "bcbe813e06befa3e",
    ),
    (
        "nvfp4_ds_mla",
        1,
        576,
        0,
        "b0ddb2825465fcac8097a2e310bd6c3984a1969de10e06abd6f48dc25d1bb456",
        "d3965f7ce2a64f6d",
        "321a3a22422b4a32",
    ),
    (
        "v4_main",
        64,
        512,
        0,
        "8b3354df1f295506a31122f88a0e262b42e04d7cb1c4b35bc236109dacc1349d",
        "4fd85bbedd55d35e",
        "0000000000000000",
    ),
    (
        "v4_main",
        2,
        512,
        0,
        "88330aa09854c69e97d6dd664ba301ccd4e5bd2652442d52a2a297edaf0266b6",
        "4fd85bbedd55d35e",
        "0000000000000000",
    ),
    (
        "index_fp8",
        64,
        128,
        1,
        "8211809f8d4868511f4b02843125f7808fb7d63a81f817124739fc2eb90bf5ca",
        "c143aac63dbc462d",
        "0000003e0000003e",
    ),
    (
        "index_fp8.v4",
        64,
        128,
        1,
        "d7b0219a4b874e233349ad70468008a0c278abf044c4ae4fc9a41132a6141832",
        "c143aac63dbc462d",
        "0000000000000000",
    ),
    (
        "index_fp4",
        64,
        128,
        1,
        "d223ecad3863049dc6d21915e2a70250eb51045b8129ca45231272fef444eb17",
        "3ab892032bc9a183",
        "7d7f81827d7f8182",
    ),
    (
        "index_fp4.v4",
        64,
        128,
        1,
        "1bed59177869c33a5012d4b1b17c94ab81bf7f2e738c2614669746b69fa4fb2f",
        "3ab892032bc9a183",
        "0000000000000000",
    ),
    (
        "index_fp4.v41",
        64,
        128,
        1,
        "1bed59177869c33a5012d4b1b17c94ab81bf7f2e738c2614669746b69fa4fb2f",
        "3ab892032bc9a183",
        "0000000000000000",
    ),
    (
        "index_fp4.v41",
        128,
        128,
        1,
        "cddd83cdb763004e79ea7d6d0851069f2c493e32d8edc70c21247b1be356bb66",
        "3ab892032bc9a183",
        "7d7f81827d7f8182",
    ),
    (
        "v41_window",
        1,
        512,
        0,
        "b3fa586e42d65774fdc4a0d931dae6855875b0cf888f5b75f6d8385db17715a4",
        "5fe86bceed65e36e",
        "797b7c787a7c7779",
    ),
    (
        "v41_main",
        1,
        512,
        0,
        "e4c0a977633ac600050dcd74af968ac6b9e22eefbb7e6cd1d6f28aab6744555d",
        "d3965f7ce2a64f6d",
        "323a424a1a232a32",
    ),
]


@pytest.mark.parametrize("level", codec.levels())
@pytest.mark.parametrize(("format", "entries", "dim", "stream", "digest", "first", "last"), VECTORS)
def test_sha256_vectors(
    format: str, entries: int, dim: int, stream: int, digest: str, first: str, last: str, level: str
) -> None:
    page = codec.pack(rows(entries, dim, stream), format, entries=entries, level=level)
    data = page.tobytes()
    assert (data[:8].hex(), data[-8:].hex()) == (first, last)
    assert hashlib.sha256(data).hexdigest() == digest


def test_entries_move_between_page_shapes_without_re_encoding() -> None:
    x = rows(70, 512)
    pages = codec.pack(x, "v41_window.split", entries=64)
    moved = codec.move(pages, ("v41_window.split", 64), ("v41_window", 1), count=70)
    np.testing.assert_array_equal(moved, codec.pack(x, "v41_window", entries=1))
    with pytest.raises(
        ValueError, match=r"to: v41_main given, a format with the columns and rules"
    ):
        codec.move(pages, ("v41_window.split", 64), ("v41_main", 1), count=70)


@pytest.mark.torch
def test_torch_and_ml_dtypes_rows_give_the_same_pages() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = rows(5, 576)
    wanted = codec.pack(x, "fp8_ds_mla", entries=2)
    assert wanted.shape == (3, 2 * 656)
    np.testing.assert_array_equal(
        codec.pack(x.view(ml_dtypes.bfloat16), "fp8_ds_mla", entries=2), wanted
    )
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    np.testing.assert_array_equal(codec.pack(tensor, "fp8_ds_mla", entries=2), wanted)
    out = torch.empty((5, 576), dtype=torch.bfloat16)
    codec.unpack(wanted, "fp8_ds_mla", entries=2, count=5, out=out)
    assert torch.equal(out[:, 512:], tensor[:, 512:])


def test_page_errors_name_what_is_wanted() -> None:
    x = rows(2, 512)
    with pytest.raises(ValueError, match=r"rows: shape \(2, 512\) given, \[\.\.\., 576\] wanted"):
        codec.pack(x, "fp8_ds_mla", entries=1)
    with pytest.raises(ValueError, match=r"unknown record format \"v5\"; known: mla_bf16"):
        codec.pack(x, "v5", entries=1)
    with pytest.raises(ValueError, match="entries: 0 given"):
        codec.pack(x, "v41_main", entries=0)
    with pytest.raises(ValueError, match="pages: 100 bytes given, exactly 576 wanted"):
        codec.unpack(np.zeros(100, np.uint8), "v41_main", entries=2, count=2)


def test_gqa_pages_round_trip_and_check_their_scales() -> None:
    page = codec.GqaPage("fp8_e4m3.static", tokens=16, heads=2, head_dim=64, order="hnd")
    x = rows(32, 64).reshape(16, 2, 64)
    data = page.pack(x, x, k_scale=0.25, v_scale=0.5)
    assert data.nbytes == page.nbytes == 2 * 16 * 2 * 64
    keys, values = page.unpack(data, k_scale=0.25, v_scale=0.5)
    exact = (x.astype(np.uint32) << 16).view(np.float32)
    for side in (keys, values):
        got = (side.astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_allclose(got, exact, rtol=0.07, atol=1e-3)
    for bad in (float("nan"), float("inf"), 0.0, -1.0):
        with pytest.raises(ValueError, match=r"k_scale\[0\]"):
            page.pack(x, x, k_scale=bad)
    with pytest.raises(ValueError, match=r"scales per head: 2 given, a multiple of 4 wanted"):
        codec.GqaPage("nvfp4.global", tokens=4, heads=1, head_dim=32, scales="after_v4x4")


def test_scale_layouts_are_undone() -> None:
    scales = np.arange(256 * 8, dtype=np.uint32).astype(np.uint8).reshape(256, 8)
    layouts: list[Any] = ["linear", "128x4", "4x4"]
    for layout in layouts:
        laid = codec.apply_scale_layout(scales, layout)
        np.testing.assert_array_equal(codec.undo_scale_layout(laid, layout, 256, 8), scales)


@pytest.mark.torch
def test_tiles_are_torchaos_blocks() -> None:
    pytest.importorskip("torchao")
    torch = pytest.importorskip("torch")
    utils = pytest.importorskip("torchao.prototype.mx_formats.utils")
    scales = torch.arange(200 * 12).to(torch.uint8).reshape(200, 12)
    wanted = utils.to_blocked(scales).numpy().reshape(-1)
    np.testing.assert_array_equal(codec.apply_scale_layout(scales, "128x4"), wanted)
