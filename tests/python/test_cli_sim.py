"""kvstore sim."""

import csv
from pathlib import Path

import pytest
from conftest import Cli


def test_rows_per_policy_and_capacity(cli: Cli, trace: Path) -> None:
    ended = cli("sim", trace, "--policy", "leaf-lru,optimum", "--capacity", "3,100%", "--json")
    assert ended.status == 0
    rows = ended.json["rows"]
    assert [(row["policy"], row["capacity_blocks"]) for row in rows] == [
        ("leaf-lru", 3),
        ("leaf-lru", 7),
        ("optimum", 3),
        ("optimum", 7),
    ]
    assert rows[1]["trace"] == "small.jsonl"
    assert rows[1]["hit_ratio"] == 5 / 12
    assert rows[1]["bytes_written_per_byte_hit"] == 7 / 5


def test_the_table_says_the_same(cli: Cli, trace: Path) -> None:
    ended = cli("sim", trace, "--policy", "lru", "--capacity", "100%")
    assert ended.status == 0
    assert "small.jsonl  lru     100%           7     0.4167       1.4000" in ended.out


def test_head_takes_the_first_requests(cli: Cli, trace: Path) -> None:
    (row,) = cli("sim", trace, "--policy", "lru", "--capacity", 7, "--head", 2, "--json").json[
        "rows"
    ]
    assert (row["requests"], row["blocks_hit"]) == (2, 2)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_rows_can_be_written(cli: Cli, trace: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"rows.{suffix}"
    rows = cli("sim", trace, "--capacity", "3", "--out", out, "--json").json["rows"]
    if suffix == "csv":
        with out.open() as file:
            read = [row["blocks_hit"] for row in csv.DictReader(file)]
        assert read == [str(row["blocks_hit"]) for row in rows]
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        assert parquet.read_table(out).to_pylist() == rows


@pytest.mark.parametrize(
    ("words", "mend"),
    [
        (["none.jsonl"], "none.jsonl"),
        (["TRACE", "--policy", "fifo"], "must be one of leaf-lru, lru, optimum"),
        (["TRACE", "--capacity", "0%"], "must be a number of blocks"),
        (["TRACE", "--out", "rows.xls"], "must end in .csv or .parquet"),
    ],
)
def test_wrong_use_is_refused_with_the_mend(
    cli: Cli, trace: Path, words: list[str], mend: str
) -> None:
    ended = cli("sim", *(str(trace) if word == "TRACE" else word for word in words))
    assert ended.status == 2
    assert ended.err.startswith("kvstore sim: ")
    assert mend in ended.err
