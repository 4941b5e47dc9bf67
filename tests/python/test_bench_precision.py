"""`kvstore bench precision`: its numbers, its files, and its part of docs/replay.md."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Cli
from kvstore.bench import _precision_cache as cache
from kvstore.bench import _precision_index as index
from kvstore.bench import _precision_report as report
from kvstore.bench.precision import measure_index
from kvstore.models import demo

DOCUMENT = Path(__file__).parents[2] / "docs" / "replay.md"

#: A run that takes seconds.
SMALL = ["--windows", 1, "--prefix", 256, "--following", 64]
SMALL += ["--entries", 3000, "--demo-tokens", 3000, "--queries", 2]


@pytest.fixture(scope="module")
def rows() -> list[cache.CacheRow]:
    return cache.measure(1, 256, 64, lambda _: None)


@pytest.fixture(scope="module")
def picked() -> tuple[list[index.IndexRow], list[index.IndexRow]]:
    return measure_index([3000], 3000, 2, 0, lambda _: None)


def _skeleton(text: str) -> str:
    """The text with all numbers made equal, and the spaces that go with their widths."""
    return re.sub(r"-?\d[\d,]*(\.\d+)?", "0", text)


def test_the_committed_document_has_the_commands_shape(
    rows: list[cache.CacheRow], picked: tuple[list[index.IndexRow], list[index.IndexRow]]
) -> None:
    """Its numbers are those of another machine's text and BLAS; all else is the command's."""
    whole = DOCUMENT.read_text(encoding="utf-8")
    committed = whole[whole.index(report.BEGIN) : whole.index(report.END)]
    about = {"windows": 1, "prefix": 256, "following": 64, "queries": 2}
    made = report.document(rows, *_two_sizes(picked), about)
    assert _skeleton(committed) == _skeleton(made[: made.index(report.END)]), (
        "run: kvstore bench precision --document docs/replay.md --pictures docs/img"
    )
    for picture in re.findall(r"\]\((img/[\w-]+\.svg)\)", committed):
        assert (DOCUMENT.parent / picture).read_text().startswith("<svg"), picture


def _two_sizes(
    picked: tuple[list[index.IndexRow], list[index.IndexRow]],
) -> tuple[list[index.IndexRow], list[index.IndexRow]]:
    """As the default run has it: the made sets in two sizes, one after the other."""
    index_rows, scores = picked
    smaller = [replace(row, entries=row.entries - 1) for row in scores if row.data != "demo"]
    return index_rows, [*smaller, *scores]


def _column(text: str, heading: str, column: str) -> dict[str, float]:
    """One column of a table of the document, by its first cell."""
    part = text[text.index(heading) :]
    lines = part[part.index("\n|") + 1 :].split("\n\n")[0].split("\n")
    at = [cell.strip() for cell in lines[0].split("|")].index(column)
    cells = [[cell.strip() for cell in line.split("|")] for line in lines[2:]]
    return {row[1]: float(row[at].replace(",", "")) for row in cells if row[at]}


def test_the_committed_numbers_rank_the_formats() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    lost = _column(text, "## What fewer bits", "divergence mbit")
    assert lost["bf16"] == 0
    assert 0 < lost["int8"] < lost["fp8 2^n per 64"] < lost["NVFP4"] < lost["MXFP4 rceil"]
    for name in ("int8", "fp8 2^n per 64", "NVFP4", "MXFP4 rceil"):
        assert lost[name] < lost[f"{name}, rope too"], "rope keys are what suffers"
    same = _column(text, "## What fewer bits", "same first choice %")
    assert same["fp8 2^n per 64"] > 99.5


def test_bytes_per_token_are_those_of_the_formats(rows: list[cache.CacheRow]) -> None:
    """Five layers of 64 latent and 32 rope values; scales: fp32 a row, e8m0 per 64 or 32, e4m3 per
    16."""
    sizes = {row.scheme: row.bytes_per_token for row in rows}
    assert sizes["bf16"] == 5 * 2 * 96 == 960
    assert sizes["fp8 scale 1"] == 5 * (64 + 64)
    assert sizes["fp8 fp32 scale, rope too"] == 5 * (64 + 4 + 32 + 4)
    assert sizes["fp8 2^n per 64"] == 5 * (64 + 1 + 64)
    assert sizes["NVFP4, rope too"] == 5 * (32 + 4 + 16 + 2)
    assert sizes["MXFP4 rceil"] == 5 * (32 + 2 + 64)
    assert all(row.bits_per_element == row.bytes_per_token / 60 for row in rows)


def test_the_reference_is_the_model_itself(rows: list[cache.CacheRow]) -> None:
    """bf16 loses nothing, and its bits per byte are those of one plain prefill."""
    reference = rows[0]
    assert (reference.added, reference.divergence, reference.top1) == (0, 0, 1)
    (text,) = cache.windows(1, 256, 64)
    model = demo.load()
    logits = model.prefill(text, model.new_cache(len(text)))[256:-1].astype(np.float64)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    following = np.frombuffer(text, np.uint8)[257:]
    bits = -logs[np.arange(63), following].mean() / np.log(2)
    assert reference.bits_per_byte == pytest.approx(bits, abs=1e-4)
    assert all(row.divergence > 0 for row in rows[1:])


def test_a_scheme_changes_only_what_it_quantises() -> None:
    model = demo.load()
    (text,) = cache.windows(1, 128, 64)
    bodies = cache._prefix(model, text[:128])
    latent = cache.Scheme("x", "mxfp4.rceil", None)
    stored, _ = cache.through(latent, bodies, model)
    assert np.array_equal(stored[..., 64:], bodies[..., 64:])
    assert not np.array_equal(stored[..., :64], bodies[..., :64])


def test_the_hadamard_rotation_keeps_products() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 50, 128)).astype(np.float32)
    turned = index.hadamard(x)
    assert np.allclose(turned @ index.hadamard(y).T, x @ y.T, atol=1e-4)
    assert np.allclose(index.hadamard(turned), x, atol=1e-5), "it is its own inverse"
    spike = np.zeros((1, 128), np.float32)
    spike[0, 3] = 1
    assert np.allclose(np.abs(index.hadamard(spike)), 128**-0.5)


def test_the_score_is_the_sum_over_heads_of_weighted_relus() -> None:
    scored = index.normal(np.random.default_rng(0), 40, 2)
    for found, asked, weight in zip(
        index.scores(scored.keys, scored.queries, scored.weights),
        scored.queries,
        scored.weights,
        strict=True,
    ):
        slow = [
            sum(w * max(q @ k, 0) for q, w in zip(asked, weight, strict=True)) for k in scored.keys
        ]
        assert np.allclose(found, slow, atol=1e-2)


def test_recall_counts_what_both_pick() -> None:
    reference = np.arange(10, dtype=np.float32)
    found = reference.copy()
    found[9] = -1  # the best is not found: 6 is picked in its place
    recall, mass = index._recall(reference, found, 3)
    assert recall == pytest.approx(2 / 3)
    assert mass == pytest.approx((8 + 7 + 6) / (9 + 8 + 7))
    assert index._recall(reference, reference, 3) == (1, 1)


def test_more_bits_pick_more(
    picked: tuple[list[index.IndexRow], list[index.IndexRow]],
) -> None:
    rows, scores = picked
    recall = {(r.data, r.format, r.rotated, r.queries, r.picks): r.recall for r in rows}
    for data in ("normal", "outliers", "topics", "demo"):
        found = [
            recall[data, name, True, "bf16", 512]
            for name in ("bf16", "fp8, 2^n scale", "NVFP4", "MXFP4")
        ]
        assert found == sorted(found, reverse=True)
        assert found[0] > 0.99
        assert recall[data, "MXFP4", True, "same", 512] < 1
    assert (
        recall["outliers", "MXFP4", True, "bf16", 512]
        > (recall["outliers", "MXFP4", False, "bf16", 512])
    ), "what the rotation is for"
    assert all(row.recall > 0.98 for row in scores)


def test_the_demo_models_queries_are_its_attentions() -> None:
    """Their products with the records are the scores that its attention computes."""
    text = demo.prompts(130, seed=3)[0]
    scored = index.of_the_demo(text, 2, 2)
    assert scored.keys.shape == (130, 128)
    assert scored.queries.shape == (2, 3, 128)
    assert not scored.queries[..., 96:].any()
    plain = demo.load()
    cache_ = plain.new_cache(130)
    plain.prefill(text, cache_)
    assert np.array_equal(scored.keys[:, :96], cache_.read(2, 130))


def test_the_command(cli: Cli, tmp_path: Path) -> None:
    document = tmp_path / "replay.md"
    document.write_text(f"# Mine\n\n{report.BEGIN}\nold\n{report.END}\n\n# Also mine\n")
    out = tmp_path / "rows.csv"
    words = ["bench", "precision", *SMALL, "--out", out, "--document", document, "--json"]
    found = cli(*words).json
    assert set(found) == {"cache", "index", "scores"}
    assert [row["scheme"] for row in found["cache"]] == [s.name for s in cache.SCHEMES]
    assert {row["data"] for row in found["index"]} == {"normal", "outliers", "topics", "demo"}
    text = document.read_text()
    assert text.startswith(f"# Mine\n\n{report.BEGIN}\n\n## What fewer bits")
    assert text.endswith(f"{report.END}\n\n# Also mine\n")
    assert "old" not in text.split("\n")
    heads = [
        (tmp_path / name).read_text().split("\n")[0].split(",")[0]
        for name in sorted(path.name for path in tmp_path.glob("*.csv"))
    ]
    assert heads == ["set", "set", "stored_as"]


def test_one_of_the_two(cli: Cli) -> None:
    words = ["bench", "precision", "--only", "index", *SMALL]
    assert set(cli(*words, "--json").json) == {"index", "scores"}
    assert "recall at" in cli(*words).out


def test_pictures(
    rows: list[cache.CacheRow],
    picked: tuple[list[index.IndexRow], list[index.IndexRow]],
    tmp_path: Path,
) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    first = [path.read_text() for path in report.draw(tmp_path / "a", rows, picked[0])]
    again = [path.read_text() for path in report.draw(tmp_path / "b", rows, picked[0])]
    assert first == again
    for text, labels in zip(
        first, (["MXFP4 rceil", "bytes per token"], ["topics", "recall"]), strict=True
    ):
        assert text.startswith("<svg")
        assert all(label in text for label in labels)
        assert report.SOURCE in text


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--prefix", 100], "whole blocks of 64"),
        (["--following", 0], "at least one token"),
        (["--prefix", 8192], "the model has 8192"),
        (["--windows", 10_000], "--windows 10000: the held-out text"),
        (["--only", "index", "--entries", 2048], "more than 2048 entries"),
        (["--only", "index", "--queries", 0], "at least one query"),
        (["--only", "cache", "--document", "x.md"], "leave out --only"),
        (["--only", "index", *SMALL, "--out", "x.txt"], "must end in .csv or .parquet"),
        ([*SMALL, "--document", "/dev/null"], "it has no part between"),
    ],
)
def test_what_cannot_be_measured_says_so(cli: Cli, words: list[object], why: str) -> None:
    ended = cli("bench", "precision", *words)
    assert ended.status == 2
    assert why in ended.err
    assert not ended.out or json.loads(ended.out)
