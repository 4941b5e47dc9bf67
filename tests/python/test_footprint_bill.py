"""Bills: tokens in whole units, prices from the record."""

from __future__ import annotations

import argparse
import gzip
import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvstore.footprint import bill
from kvstore.footprint.prices import prices
from kvstore.footprint.traces import Request, Trace, open_trace


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, object], str]:
    parser = argparse.ArgumentParser()
    bill.add_arguments(parser)
    code = bill.run(parser.parse_args([*words, "--json"]))
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


def test_the_papers_prefix_is_one_miss_and_499_hits() -> None:
    tokens = bill.count(open_trace("prefix:32768x500"))
    assert (tokens.requests, tokens.requests_with_a_hit) == (500, 499)
    assert tokens.hit == 499 * 32_768
    assert tokens.miss == 500 * 32_769 - 499 * 32_768
    old, new = prices()["deepseek-2024"], prices()["deepseek-v4.1-flash"]
    for price, discount in ((old, 10), (new, 50)):
        assert price.discount() == discount
        cached = bill.amount(tokens, price, cached=True, off_peak=False)
        assert price.hit is not None
        assert cached["hit"] == tokens.hit * price.hit / 10**6
    off_peak = bill.amount(tokens, new, cached=True, off_peak=True)
    assert off_peak["hit"] * 2 == bill.amount(tokens, new, cached=True, off_peak=False)["hit"]


def test_the_price_record() -> None:
    table = prices()
    record = {
        name: (price.since, price.hit, price.miss, price.output) for name, price in table.items()
    }
    amount = Fraction
    assert record == {
        "deepseek-2024": ("2024-08-02", amount("0.014"), amount("0.14"), None),
        "deepseek-v3.1": ("2025-08-21", None, amount("0.56"), amount("1.68")),
        "deepseek-v3.2-exp": ("2025-09-29", amount("0.028"), amount("0.28"), amount("0.42")),
        "deepseek-v3.2": ("2025-12-01", None, None, amount("0.42")),
        "deepseek-v4-pro": ("2026-08-16", None, None, None),
        "deepseek-v4.1-flash": ("2026-09-10", amount("0.006"), amount("0.3"), amount("1.2")),
    }
    assert table["deepseek-v4.1-flash"].hit_off_peak == amount("0.003")
    exp, old = table["deepseek-v3.2-exp"], table["deepseek-v3.1"]
    cuts = [
        1 - (new or 0) / was for new, was in ((exp.miss, old.miss), (exp.output, old.output)) if was
    ]
    assert cuts == [amount("1/2"), amount("3/4")]


def test_hits_need_the_whole_prefix() -> None:
    requests = [
        Request(130, 0, [1, 2, 3]),
        Request(256, 10, [1, 2, 9, 4]),  # shares two blocks
        Request(128, 0, [7, 2]),  # block 2 after another prefix has another id in a real trace
        Request(128, 0, [1, 2]),  # all is known, but one token is left to compute
    ]
    tokens = bill.count(Trace("t", 64, requests))
    assert (tokens.hit, tokens.requests_with_a_hit) == (128 + 0 + 64, 2)
    assert (tokens.prompt, tokens.output) == (130 + 256 + 128 + 128, 10)
    assert bill.count(Trace("t", 64, requests), unit=128).hit == 128


@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=6), max_size=12))
def test_hit_and_miss_make_up_the_prompt(prompts: list[list[int]]) -> None:
    requests = [Request(64 * len(blocks), 1, blocks) for blocks in prompts]
    tokens = bill.count(Trace("t", 64, requests))
    assert tokens.hit + tokens.miss == tokens.prompt == 64 * sum(map(len, prompts))
    assert tokens.hit % 64 == 0
    assert tokens.miss >= len(prompts), "each prompt computes a token or more"


def _write(path: Path, rows: list[dict[str, object]]) -> Path:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def test_a_trace_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, object]] = [
        {"input_length": 1500, "output_length": 5, "hash_ids": [0, 1, 2]},
        {"input_length": 1600, "output_length": 5, "runs": [[0, 2], [7, 2]]},
    ]
    path = _write(tmp_path / "t.jsonl.gz", rows)
    assert open_trace(str(path)).block_tokens == 512
    code, data, _ = _run(capsys, str(path), "--prices", "deepseek-v4.1-flash")
    assert code == 0
    assert data["tokens"] == {
        "requests": 2,
        "requests_with_a_hit": 1,
        "prompt": 3100,
        "hit": 1024,
        "miss": 2076,
        "output": 10,
    }
    rows_out = data["rows"]
    assert isinstance(rows_out, list)
    assert [(r["bill"], r["hours"]) for r in rows_out] == [
        ("without", "peak"),
        ("with the cache", "peak"),
        ("without", "off-peak"),
        ("with the cache", "off-peak"),
    ]
    total = 2076 * Fraction("0.3") + 1024 * Fraction("0.006") + 10 * Fraction("1.2")
    assert Fraction(rows_out[1]["total"]) == total / 10**6


def test_block_sizes_of_estimated_lengths(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"input_length": 640 + error, "hash_ids": list(range(10))} for error in (-1, 3, 2, -2)
    ]
    assert open_trace(str(_write(tmp_path / "t.jsonl.gz", rows))).block_tokens == 64
    for row in rows:
        row["input_length"] = 900
    with pytest.raises(ValueError, match="give --block TOKENS"):
        open_trace(str(_write(tmp_path / "t.jsonl.gz", rows)))


def test_own_prices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[[price]]\nname = "mine"\nhit = 1\nmiss = 2.5\n')
    code, data, _ = _run(
        capsys, "prefix:64x2", "--prices", "mine", "--price-file", str(own), "--unit", "64"
    )
    assert code == 0
    rows = data["rows"]
    assert isinstance(rows, list)
    assert Fraction(rows[1]["hit"]) == Fraction(64, 10**6)
    own.write_text('[[price]]\nname = "mine"\nhit = -1\n')
    code, _, err = _run(capsys, "prefix:64x2", "--prices", "mine", "--price-file", str(own))
    assert code == 2
    assert "price 'mine': hit = -1 must be 0 or more" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["prefix:64x2", "--prices", "nothing"], "the table has deepseek-2024"),
        (["prefix:64x2", "--prices", "deepseek-v3.1"], "has no hit price"),
        (["nowhere.jsonl", "--prices", "deepseek-2024"], "nowhere.jsonl"),
        (["prefix:64x2", "--prices", "deepseek-2024", "--block", "0"], "--block = 0"),
        (["prefix:64x2", "--prices", "deepseek-2024", "--out", "x.txt"], "must end in"),
    ],
)
def test_wrong_use(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = _run(capsys, *words)
    assert code == 2
    assert message in err


def test_broken_traces_name_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, object]] = [
        {"input_length": 600, "hash_ids": [1, 2]},
        {"input_length": 600, "hash_ids": {"sys": [1]}},
    ]
    path = _write(tmp_path / "t.jsonl.gz", rows)
    code, _, err = _run(capsys, str(path), "--prices", "deepseek-2024", "--block", "512")
    assert code == 2
    assert "t.jsonl.gz:2: hash_ids must be a list" in err
    (tmp_path / "t.jsonl").write_text("nonsense\n")
    code, _, err = _run(capsys, str(tmp_path / "t.jsonl"), "--prices", "deepseek-2024")
    assert "t.jsonl:1: no JSON object" in err
