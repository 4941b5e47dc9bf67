"""The tables of ``kvstore footprint``: exact, and written in every form."""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from kvstore.footprint import cli
from kvstore.footprint.table import Table, human


def _args(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    return parser.parse_args(words)


def _tables(*words: str) -> dict[str, Table]:
    return {table.name: table for table in cli.compute(_args(*words))}


def _row(table: Table, name: str, **cells: object) -> dict[str, Any]:
    wanted = {"name": name, **cells}
    (row,) = (r for r in table.rows if all(r.get(k) == v for k, v in wanted.items()))
    return row


def test_all_prints_the_headline_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(_args("--all")) == 0
    out = capsys.readouterr().out
    for line in (
        "DeepSeek V4.1-Flash: 890.0 B per token in a body of 128 tokens, 896 in its slot",
        "DeepSeek V4-Pro: 5031.44 B per token in a body of 128 tokens",
        "10.47% of V3.2.",
        "7.31% of V3.2.",
    ):
        assert line in out


def test_master_table_is_exact() -> None:
    master = _tables("--all")["master"]
    flash = _row(master, "deepseek-v4-flash")
    assert flash["bytes_per_token"] == Fraction(14_057, 4)
    assert flash["percent_of_v32"] == Fraction(14_057, 4) / 48_068 * 100
    v41 = _row(master, "deepseek-v4.1-flash")
    assert (v41["bytes_in_body"], v41["bytes_in_slot"]) == (890, 896)
    assert (v41["owners"], v41["layers"]) == (4, 40)
    assert v41["baseline_over_this"] == Fraction(389_120, 890)
    assert _row(master, "deepseek-llm-7b")["elements_per_token_and_layer"] == 8_192
    padded = _tables("deepseek-v4-flash", "--form", "vllm:fp8_ds_mla")["master"]
    assert padded.rows[0]["padded"] == Fraction(358_425, 100)


def test_reads_and_their_time() -> None:
    reads = _tables("deepseek-v3.2", "--hbm-bandwidth", "8")["reads"]
    row = _row(reads, "deepseek-v3.2", tokens=131_072)
    assert row["bytes"] == 1_137_344_512
    assert row["milliseconds"] == pytest.approx(1_137_344_512 / 8e12 * 1e3)


def test_persistent_bytes_by_interval() -> None:
    table = _tables("deepseek-v4-flash")["persistent"]
    row = _row(table, "deepseek-v4-flash", p=256)
    assert row["with_window"] == Fraction(449_824, 128) + Fraction(3_214_336, 256)
    assert row["with_engine_tails"] == Fraction(449_824, 128) + Fraction(15_420_416, 256)
    dense = _tables("deepseek-v3")["persistent"]
    assert [r.get("p") for r in dense.rows] == [None], "without windows no interval matters"


def test_what_fits_beside_the_weights() -> None:
    words = ["deepseek-v3", "--devices", "8", "--hbm-gb", "100", "--tokens", "100000"]
    row = _tables(*words)["fit"].rows[0]
    assert row["weights_gb"] == 671
    assert row["free_gb"] == 8 * 100 * 0.9 - 671
    request = 70_272 * 100_000
    assert row["requests_one_device_each"] == 8 * (int(49e9 / 8) // request)
    assert row["requests_tensor_parallel"] == int(49e9 / 8) // request, "MLA is on every rank"
    assert row["tokens_per_tb_ssd"] == 10**12 // 70_272
    small = _tables("deepseek-v3", "--devices", "1")["fit"].rows[0]
    assert small["requests_one_device_each"] is None, "the weights alone do not fit"


def test_cost_of_a_million_tokens() -> None:
    row = _tables("deepseek-v4.1-flash", "--ssd-price", "100", "--interval", "8192")["cost"].rows[0]
    stored = 890 + 2_703_360 / 8192
    assert row["gb_ssd"] == pytest.approx(stored / 1e3)
    assert row["usd_ssd_month"] == pytest.approx(stored / 1e6 * 100)


def test_axes_multiply_to_the_ratio() -> None:
    table = _tables("--axes")["axes"]
    *rows, total = (dict[str, Any](row) for row in table.rows)
    assert total["product"] == Fraction(491_520, 890)
    for before, row in pairwise(rows):
        assert row["record_factor"] * row["entries_factor"] * row["layers_factor"] == row["product"]
        assert row["product"] == before["bytes_per_token"] / row["bytes_per_token"]
        cells = row["record_bytes"] * row["entries_per_token"] * row["owning_layers"]
        assert cells == row["bytes_per_token"]
    v41 = _row(table, "deepseek-v4.1-flash")
    assert (v41["record_bytes"], v41["owning_layers"]) == (356, 4)
    assert v41["entries_per_token"] == Fraction(5, 8)


def test_overhead_is_slot_descriptor_and_index() -> None:
    row = _tables("deepseek-v4.1-flash")["overhead"].rows[0]
    assert (row["body"], row["slot"], row["rounding"]) == (890, 896, 6)
    assert (row["descriptor"], row["index_in_memory"]) == (Fraction(64, 128), Fraction(80, 128))


def test_ranks() -> None:
    table = _tables("llama-3-70b", "deepseek-v3", "--tp", "8", "--tokens", "1000")["ranks"]
    llama = _row(table, "llama-3-70b", group="kv")
    assert (llama["first_rank"], llama["copies_over_tp"]) == (327_680 * 1000 // 8, 1)
    mla = _row(table, "deepseek-v3", group="mla")
    assert (mla["first_rank"], mla["copies_over_tp"]) == (mla["whole"], 8)
    refused = _tables("llama-3-70b", "--tp", "3")["ranks"].rows[0]
    assert "one must divide the other" in str(refused["group"])


def test_json_rows_keep_fractions(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(_args("deepseek-v4-flash", "--json")) == 0
    data = json.loads(capsys.readouterr().out)
    logical = {"form": "native", "basis": "logical", "bytes_per_token": "14057/4"}
    assert {"name": "deepseek-v4-flash", **logical} in data["rows"]
    assert {row["basis"] for row in data["rows"]} == {"logical", "body", "slot"}
    assert set(data["tables"]) >= {"master", "persistent", "reads", "fit", "cost"}


def test_csv(tmp_path: Path) -> None:
    assert cli.run(_args("deepseek-v4-flash", "--out", str(tmp_path / "f.csv"))) == 0
    with (tmp_path / "f.csv").open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row["bytes_per_token"] == "14057/4"
    assert (tmp_path / "f-reads.csv").exists()


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs pyarrow")
def test_parquet(tmp_path: Path) -> None:
    from pyarrow import parquet  # type: ignore[import-untyped, unused-ignore]

    assert cli.run(_args("--all", "--out", str(tmp_path / "f.parquet"))) == 0
    reads = parquet.read_table(tmp_path / "f-reads.parquet").to_pylist()
    assert {"name": "deepseek-v3.2", "tokens": 131_072, "bytes": 1_137_344_512}.items() <= next(
        r for r in reads if r["name"] == "deepseek-v3.2" and r["tokens"] == 131_072
    ).items()


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib")
def test_html_and_pictures(tmp_path: Path) -> None:
    out = tmp_path / "f.html"
    args = _args("deepseek-v4-flash", "--out", str(out), "--pictures", str(tmp_path / "img"))
    assert cli.run(args) == 0
    page = out.read_text(encoding="utf-8")
    assert page.count("<svg") == 3
    assert "3,514.25" in page
    assert "src=" not in page, "nothing is loaded from elsewhere"
    names = sorted(path.name for path in (tmp_path / "img").iterdir())
    assert names == ["bytes-per-token.svg", "reads-by-context.svg", "stored-by-interval.svg"]


def test_own_toml_and_own_model(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        '[[arch]]\nname = "mine"\nlayers = 2\nsource = "me"\nforms = ["dense"]\n'
        '[[arch.group]]\nname = "kv"\nlayers = "0-1"\nheads = 1\ndim = 64\n'
    )
    assert _tables("--toml", str(own))["master"].rows[0]["bytes_per_token"] == 512
    config = {"model_type": "x", "vocab_size": 9, "num_hidden_layers": 2, "hidden_size": 128}
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_attention_heads": 2}))
    assert _tables("--model", str(tmp_path))["master"].rows[0]["bytes_per_token"] == 1024


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "no architecture is called 'nothing'"),
        (["--tokens", "0"], "--tokens = 0 must be 1 or more"),
        (["--hbm-bandwidth", "0"], "--hbm-bandwidth = 0.0 must be above 0"),
        (["--out", "f.xls"], "must end in .csv, .parquet, .json or .html"),
        (["deepseek-v3", "--form", "x"], "use one of"),
        (["--toml", "nowhere.toml"], "nowhere.toml"),
        (["--model", "nowhere"], "nowhere"),
    ],
)
def test_wrong_use(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(_args(*words)) == 2
    assert message in capsys.readouterr().err


def test_numbers_for_people() -> None:
    assert human(Fraction(14_057, 4)) == "3,514.25"
    assert human(Fraction(890)) == "890"
    assert (human(0.0682), human(1.5), human(None), human(12_345)) == (
        "0.0682",
        "1.5",
        "",
        "12,345",
    )
    table = Table("t", "T", ["a", "b"])
    table.add(a="x", b=1)
    assert table.text().splitlines()[-1] == "x  1"
    with pytest.raises(KeyError, match="no column c"):
        table.add(c=1)
