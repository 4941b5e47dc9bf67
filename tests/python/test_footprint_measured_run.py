"""kvstore footprint --measured for real: a model in two processes, and its cache on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Cli
from kvstore.footprint.measured import disk
from kvstore.layouts import Layout

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytestmark = pytest.mark.torch


def test_both_kinds_of_models(cli: Cli, tmp_path: Path) -> None:
    """The reference model of V4.1-Flash, and a family of transformers with windows."""
    names = ["deepseek-v4.1-flash", "gemma-3-1b", "nsa-27b"]
    kept = tmp_path / "kept"
    ended = cli("footprint", *names, "--measured", "--tokens", 270, "--dir", kept, "--json")
    assert ended.status == 0, ended.err
    assert "[1/3] deepseek-v4.1-flash: a model of it runs" in ended.err
    rows = {(row["name"], row["policy"]): row for row in ended.json["rows"]}

    entries = rows["deepseek-v4.1-flash", "entries only"]
    assert (entries["basis"], entries["bytes_per_token"]) == ("logical", "890")
    assert (entries["measured_logical"], entries["measured_physical"]) == ("890", "1793/2")
    assert (entries["tokens"], entries["note"]) == (256, "256 of 270 tokens: whole blocks")
    assert (entries["default"], entries["mode"]) == (True, "bounded_replay")
    window = Layout.named("deepseek-v4.1-flash").window_bytes
    end = rows["deepseek-v4.1-flash", "prompt end"]
    assert end["counted"]["areas"] == {"body": 256 * 890, "window": window, "checkpoint": 0}
    assert (end["basis"], end["mode"], end["same_logits"]) == ("persistent", "plain", True)

    gemma = rows["gemma-3-1b", "prompt end"]
    assert (gemma["mode"], gemma["same_logits"], gemma["default"]) == ("plain", True, True)
    assert gemma["measured_logical"] == gemma["bytes_per_token"]
    assert "transformers" in gemma["model"]
    assert "measured_logical" not in rows["nsa-27b", "prompt end"]
    assert (
        "computed only: transformers has no causal model" in rows["nsa-27b", "prompt end"]["note"]
    )

    store = kept / "deepseek-v4.1-flash" / "prompt-end"
    assert disk.count(store).as_json() == end["counted"], "the store stays, and is as it was"
    inspected = cli("inspect", store, "--json").json
    assert inspected["disk"]["objects"] == 3
    assert inspected["namespaces"][0]["description"]["model"] == "deepseek-v4.1-flash"
    assert cli("check", store, "--json").json["damaged"] == []


def test_a_form_that_nothing_packs_is_told(cli: Cli) -> None:
    ended = cli("footprint", "qwen3-0.6b", "--form", "int8", "--measured", "--tokens", 64, "--json")
    (row,) = ended.json["rows"]
    assert "measured_logical" not in row
    assert "computed only: group 'kv' keeps int8" in row["note"]
