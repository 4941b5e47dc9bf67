"""`kvstore codec report` and `kvstore bench codec` as modules: output, exit codes, errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from kvstore import codec
from kvstore.bench import codec as bench
from kvstore.codec import _picture, _tensors, report
from kvstore.models import safetensors


def test_report_prints_a_table_and_one_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--rows", "64", "--distribution", "gaussian"]
    assert report.main(small) == 0
    table = capsys.readouterr().out
    assert "| mxfp4.floor | 4.25 | 18." in table
    assert "lossless (byte planes, zstd-1), gaussian:" in table
    out = tmp_path / "rows.csv"
    assert report.main([*small, "--json", "--preset", "nvfp4", "--out", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["preset"] for row in found["rows"]] == ["nvfp4"]
    assert set(found["lossless"][0]) == {"data", "ratio_bytes", "ratio_slots"}
    assert out.read_text().startswith("data,preset,bits_per_element,sqnr_db,relative_error\n")


def test_report_reads_tensor_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).standard_normal((4, 8, 128)).astype(np.float16)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", first=_tensors.to_bf16(x.astype(np.float32)))
    rows = []
    for name in ("x.npy", "x.npz"):
        assert report.main([str(tmp_path / name), "--json", "--preset", "mxfp4.even"]) == 0
        rows.append(json.loads(capsys.readouterr().out)["rows"][0])
    assert rows[0]["sqnr_db"] == rows[1]["sqnr_db"] == pytest.approx(19, abs=1)


def test_report_reads_one_of_several_tensors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    tensors = {"k": rng.standard_normal((64, 128), np.float32), "v": np.ones((2, 64), np.float32)}
    (tmp_path / "x.safetensors").write_bytes(safetensors.pack_bf16(tensors, {}))
    np.savez(tmp_path / "x.npz", k=_tensors.to_bf16(tensors["k"]), v=tensors["v"])
    found = []
    for name in ("x.safetensors", "x.npz"):
        path = tmp_path / name
        assert report.main([str(path), "--json", "--preset", "mxfp4.even", "--tensor", "k"]) == 0
        found.append(json.loads(capsys.readouterr().out)["rows"][0])
        assert found[-1]["data"] == f"{name}: k"
        assert report.main([str(path)]) == 2
        assert f"{name}: holds 2 tensors, --tensor NAME wanted; k, v" in capsys.readouterr().err
        assert report.main([str(path), "--tensor", "q"]) == 2
        assert "--tensor q is not in it; it holds k, v" in capsys.readouterr().err
    assert found[0]["sqnr_db"] == found[1]["sqnr_db"] == pytest.approx(19, abs=1)


def test_report_says_which_file_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("x.npy", "x.npz", "x.safetensors"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 nothing of the kind")
        assert report.main([str(tmp_path / name)]) == 2
        assert name in capsys.readouterr().err
    np.save(tmp_path / "one.npy", np.ones((2, 32), np.float32))
    assert report.main([str(tmp_path / "one.npy"), "--tensor", "k"]) == 2
    assert "its one tensor has no name" in capsys.readouterr().err
    np.save(tmp_path / "text.npy", np.array(["a", "b"]))
    assert report.main([str(tmp_path / "text.npy")]) == 2
    assert "<U1 given, floats or bf16 bits wanted" in capsys.readouterr().err


@pytest.mark.torch
def test_report_reads_torch_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    x = torch.randn(64, 128, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    torch.save(x, tmp_path / "one.pt")
    torch.save({"k": x.T.contiguous().T, "step": 3, "v": x[:1].float()}, tmp_path / "two.pt")
    found = []
    for arguments in (["one.pt"], ["two.pt", "--tensor", "k"]):
        path = [str(tmp_path / arguments[0]), *arguments[1:]]
        assert report.main([*path, "--json", "--preset", "mxfp4.even"]) == 0
        found.append(json.loads(capsys.readouterr().out)["rows"][0]["sqnr_db"])
    assert found[0] == found[1] == pytest.approx(19, abs=1)
    torch.save([1, 2], tmp_path / "list.pt")
    (tmp_path / "bad.pt").write_bytes(b"nothing of the kind")
    for name, message in (
        ("list.pt", "list given, a tensor or a dict of them wanted"),
        ("bad.pt", "not a file of torch tensors"),
        ("two.pt", "holds 2 tensors"),
    ):
        assert report.main([str(tmp_path / name)]) == 2
        assert message in capsys.readouterr().err


def test_labels_of_the_picture_keep_apart() -> None:
    heights = [10.0, 10.5, 30.0, 9.9]
    placed = _picture.spread(heights, 2.0)
    assert placed == [11.9, 13.9, 30.0, 9.9]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.npy"], "missing.npy"),
        (["--preset", "fp9"], "unknown preset"),
        (["--rows", "0"], "--rows, --cols: 0, 128 given"),
        (["--tensor", "k"], "--tensor: FILE wanted with it"),
        (["x.bin"], "a file that ends in .npy, .npz, .safetensors, .pt, .pth wanted"),
    ],
)
def test_report_says_what_is_wrong(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report.main(arguments) == 2
    assert message in capsys.readouterr().err


def test_report_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "img" / "quality.png"
    arguments = ["--rows", "32", "--picture", str(picture), "--preset", "nvfp4"]
    assert report.main(arguments) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_bench_rows_have_the_common_shape(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--size", "1MiB", "--pairs", "2", "--level", "scalar", "--peer", "none", "--json"]
    assert bench.main(arguments) in (0, 1)  # a busy machine may miss the null
    rows = json.loads(capsys.readouterr().out)["rows"]
    wanted = {"bench", "size", "ratio", "q1", "q3", "pairs", "path", "bar", "met", "ceiling"}
    assert all(set(row) == wanted and row["size"] == 1 << 20 for row in rows)
    names = [row["bench"] for row in rows]
    assert names[0] == "memcpy / memcpy"
    assert {"encode nvfp4", "decode mxfp4.rceil", "split byte planes"} <= set(names)


def test_bench_rows_of_streamed_decodes_have_a_ceiling(
    capsys: pytest.CaptureFixture[str],
) -> None:
    levels = [level for level in codec.levels() if level.startswith("avx512")]
    if not levels:
        pytest.skip("needs AVX-512: other levels have no bar for streamed decodes")
    arguments = ["--size", "1MiB", "--pairs", "2", "--level", levels[0], "--peer", "none", "--json"]
    assert bench.main(arguments) in (0, 1)
    rows = json.loads(capsys.readouterr().out)["rows"]
    traffic = {row["bench"]: row["ratio"] for row in rows if row["bench"].startswith("traffic")}
    assert set(traffic) == {"traffic of N/2 to N", "traffic of N/4 to N"}
    streamed = [row for row in rows if row["bar"] and row["path"].endswith("streamed")]
    assert len(streamed) == len(bench.CONVERSIONS)
    for row in streamed:
        part = 4 if "fp4" in row["bench"] else 2
        assert row["ceiling"] == traffic[f"traffic of N/{part} to N"]
        assert row["bar"] == min(2.0, row["bar"])


def test_bench_refuses_what_it_cannot_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--level", "mmx"]) == 2
    assert "--level ['mmx']" in capsys.readouterr().err
    assert bench.main(["--size", "1000"]) == 2
