"""`kvstore bench replay`: the committed figures say what the page claims, and the command runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kvstore.bench.replay import page
from kvstore.cli import main

DOCS = Path(__file__).parents[2] / "docs"
REPORT: dict[str, Any] = json.loads((DOCS / "replay.json").read_text(encoding="utf-8"))


def test_the_committed_page_is_the_commands(tmp_path: Path) -> None:
    committed = DOCS / "replay.md"
    copy = tmp_path / "replay.md"
    copy.write_bytes(committed.read_bytes())
    page.put_block(copy, page.document(REPORT))
    assert copy.read_text() == committed.read_text(), (
        "run: kvstore bench replay --from docs/replay.json --page docs/replay.md"
    )


def test_exact_modes_are_exact() -> None:
    modes = {(row["architecture"], row["mode"]) for row in REPORT["exact"]}
    assert modes == {
        ("deepseek-v4.1-flash", "plain"),
        ("deepseek-v4.1-flash", "exact_replay"),
        ("deepseek-v4-flash", "checkpoint"),
        ("deepseek-v4-flash", "exact_replay"),
    }
    assert all(row["cuts"] == row["equal"] > 0 for row in REPORT["exact"])
    assert len(REPORT["families"]) >= 10
    for row in REPORT["families"]:
        assert row["mode"] == "exact_replay"
        assert row["equal_bits"], row["family"]
        assert row["recompute_tokens"] < row["usable"] == row["cut"]


def test_bounded_replay_is_near() -> None:
    """Never exact, small, and smaller with distance."""
    for row in REPORT["error"]:
        assert 0 < row["kl"] <= row["kl_max"]
        assert 0 < row["difference"] <= row["difference_max"]
    merged = page.over(REPORT["error"], lambda row: (page.subject(row), row["first"] >= 128))
    for name in {name for name, _ in merged}:
        near, far = merged[name, False], merged[name, True]
        assert far["kl"] < near["kl"] < 0.1, name
        assert near["agreement"] > 0.9, name


def test_the_page_tells_the_size_of_the_error() -> None:
    """What docs/replay.md says in words of the trained toy, rows as they are served."""
    rows = [r for r in REPORT["error"] if r["weights"] == "trained" and r["form"] == "native"]
    by = page.over(rows, lambda row: row["first"])
    assert all(0.001 <= by[first]["kl"] <= 0.004 for first in (0, 1, 16))
    assert by[256]["kl"] < by[0]["kl"] / 20
    assert round(by[0]["agreement"], 3) == 0.917
    assert min(by[128]["agreement"], by[256]["agreement"]) > 0.99
    assert round(max(row["difference_max"] for row in rows), 2) == 0.28
    assert all(row["bits_replayed"] - row["bits_exact"] < 0.02 for row in by.values())


def test_the_trained_model_has_learned() -> None:
    (weights,) = REPORT["weights"]
    assert weights["bits_per_byte"] < 4  # a uniform guess takes 8
    cuts = {row["cut"] for row in REPORT["error"] if row["weights"] == "trained"}
    assert {512, 1024, 2048, 4096} <= cuts


def test_costs_at_true_geometry() -> None:
    plans = {(r["architecture"], r["cut"], r["mode"]): r for r in REPORT["planned"]}
    names = ("recompute_tokens", "recompute_layer_tokens", "read_bytes", "stored_bytes")

    def plan(*key: Any) -> tuple[int, ...]:
        return tuple(plans[key][name] for name in names)

    v41, v4 = "deepseek-v4.1-flash", "deepseek-v4-flash"
    # layers x 128 x 528 B of windows; 64 blocks of 113,920 B of entries
    assert plan(v41, 8192, "plain") == (1, 40, 64 * 113_920 + 2_703_360, 2_703_360)
    assert plan(v41, 8192, "bounded_replay") == (129, 21 * 129 + 19 * 128, 64 * 113_920, 0)
    assert plan(v41, 8192, "exact_replay")[0] == 5_121
    assert plan(v4, 8192, "checkpoint")[3] == 3_214_336 + 430_080
    assert plan(v4, 8192, "exact_replay") == (5_505, 43 * 5_505, 64 * 449_824, 0)
    assert (v4, 2048, "exact_replay") not in plans  # it would be longer than the prompt


def test_measured_costs_have_their_order() -> None:
    """Reading computes less than a bounded replay, that less than an exact one or nothing stored.
    The figures are committed ones: nothing is timed here."""
    groups: dict[tuple[str, int], dict[str, float]] = {}
    for row in REPORT["cost"]:
        assert row["cpu_seconds_q1"] <= row["cpu_seconds"] <= row["cpu_seconds_q3"]
        key = page.subject(row), row["cut"]
        groups.setdefault(key, {})[row["mode"]] = row["cpu_seconds"]
    assert len(groups) >= 4
    order = ("plain", "checkpoint", "bounded_replay", "exact_replay", "cold")
    for key, seconds in groups.items():
        found = [seconds[mode] for mode in order if mode in seconds]
        assert len(found) >= 3
        assert found == sorted(found), key


def test_drafts_are_as_good_after_a_restore() -> None:
    assert sum(row["drafts"] for row in REPORT["drafts"]) >= 300
    for row in REPORT["drafts"]:
        assert row["same_tokens"]
        assert row["right_live"] == row["right_restored"]
        assert 0 < row["right_live"] <= row["drafts"]


def test_a_page_without_marks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "page.md"
    other.write_text("no marks\n")
    source = str(DOCS / "replay.json")
    assert main(["bench", "replay", "--from", source, "--page", str(other)]) == 2
    assert "no lines <!-- kvstore bench replay: begin -->" in capsys.readouterr().err
    assert other.read_text() == "no marks\n"


def test_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "replay", "--steps", "0"]) == 2
    assert "--steps: 0 given, at least 1 wanted" in capsys.readouterr().err
    assert main(["bench", "replay", "--from", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err


def test_the_picture_is_drawn_from_the_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    picture = tmp_path / "replay.png"
    source = str(DOCS / "replay.json")
    assert main(["bench", "replay", "--from", source, "--picture", str(picture), "--json"]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_a_quick_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It measures all there is, and its own output makes the same tables."""
    pytest.importorskip("torch", reason="needs torch")
    pytest.importorskip("transformers", reason="needs transformers")
    out = tmp_path / "replay.json"
    assert main(["bench", "replay", "--quick", "--out", str(out)]) == 0
    tables = capsys.readouterr().out
    report = json.loads(out.read_text())
    assert report.keys() == REPORT.keys()
    for name in REPORT.keys() - {"weights", "made_with"}:
        assert report[name][0].keys() == REPORT[name][0].keys(), name
    assert main(["bench", "replay", "--from", str(out)]) == 0
    assert capsys.readouterr().out == tables


@pytest.mark.torch
def test_training_lowers_the_loss() -> None:
    """Gradients go through the reference model's own pass: a few steps beat a uniform guess."""
    torch = pytest.importorskip("torch", reason="needs torch")
    from kvstore.bench.replay.training import bits_per_byte, corpus_parts, trained

    torch.set_num_threads(1)
    text = corpus_parts()[1][:513]
    model = trained("deepseek-v4-flash", "native", 25, seed=1)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert bits_per_byte(model, text, 256) < 6.5
