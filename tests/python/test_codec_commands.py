"""`kvstore codec report` and `kvstore bench codec` as modules: output, exit codes, errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from kvstore.bench import codec as bench
from kvstore.codec import report


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
    np.savez(tmp_path / "x.npz", first=report.to_bf16(x.astype(np.float32)))
    rows = []
    for name in ("x.npy", "x.npz"):
        assert report.main([str(tmp_path / name), "--json", "--preset", "mxfp4.even"]) == 0
        rows.append(json.loads(capsys.readouterr().out)["rows"][0])
    assert rows[0]["sqnr_db"] == rows[1]["sqnr_db"] == pytest.approx(19, abs=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.npy"], "missing.npy"),
        (["--preset", "fp9"], "unknown preset"),
        (["--rows", "0"], "--rows, --cols: 0, 128 given"),
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
    wanted = {"bench", "size", "ratio", "q1", "q3", "pairs", "path", "bar", "met"}
    assert all(set(row) == wanted and row["size"] == 1 << 20 for row in rows)
    names = [row["bench"] for row in rows]
    assert names[0] == "memcpy / memcpy"
    assert {"encode nvfp4", "decode mxfp4.rceil", "split byte planes"} <= set(names)


def test_bench_refuses_what_it_cannot_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--level", "mmx"]) == 2
    assert "--level ['mmx']" in capsys.readouterr().err
    assert bench.main(["--size", "1000"]) == 2
