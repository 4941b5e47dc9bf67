"""The audit of transformers' configurations against the committed list."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from kvstore.layouts import cli
from kvstore.layouts.audit import available

COMMITTED = Path(__file__).parents[2] / "docs" / "layouts-audit.txt"
VERSION = COMMITTED.read_text(encoding="utf-8").split()[2].rstrip(":")

#: Types of the families of the registry.
FAMILIES = [
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "deepseek_v4",
    "kimi_k25",
    "kimi_linear",
    "glm_moe_dsa",
    "llama",
    "qwen3",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_5",
    "qwen3_5_moe",
    "gemma3",
    "gemma3_text",
    "gpt_oss",
    "mistral",
    "mixtral",
    "mistral4",
    "mistral_large4",
    "minimax",
    "minimax_m2",
    "minimax_m3_vl",
]


def _findings() -> dict[str, str]:
    lines = COMMITTED.read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines if not line.startswith("#"))


def test_the_committed_list_places_the_families() -> None:
    findings = _findings()
    for model_type in FAMILIES:
        assert "B per token" in findings[model_type], model_type
    assert sum("not placed" in finding for finding in findings.values()) < len(findings) / 2


@pytest.mark.skipif(available() != VERSION, reason=f"needs transformers {VERSION}")
@pytest.mark.filterwarnings("ignore")
def test_the_audit_raises_nothing_and_matches_the_list(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    out = tmp_path / "audit.txt"
    assert cli.run(parser.parse_args(["--audit", "--out", str(out)])) == 0
    assert out.read_text(encoding="utf-8") == COMMITTED.read_text(encoding="utf-8")


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    code = cli.run(parser.parse_args(words))
    out, err = capsys.readouterr()
    return code, out, err


def test_list_and_describe(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys)
    assert code == 0
    assert "deepseek-v4.1-flash" in out
    code, out, _ = _run(capsys, "deepseek-v4.1-flash", "--json")
    (row,) = json.loads(out)["layouts"]
    assert (row["bytes_per_token"], row["body_bytes"]) == ("890", 113_920)
    code, out, _ = _run(capsys, "DeepSeek-R1", "--form", "vllm:fp8_ds_mla")
    assert "40016 B per token" in out


def test_wrong_use_says_the_mend(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = _run(capsys, "nothing")
    assert code == 2
    assert "no architecture is called 'nothing'" in err
    own = tmp_path / "own.toml"
    own.write_text('[[arch]]\nname = "a"\nlayers = 2\nsource = "me"\nforms = ["dense"]\n')
    code, _, err = _run(capsys, "--toml", str(own))
    assert code == 2
    assert "own.toml:1: missing field `group`. Mend: add it" in err
