"""kvstore demo, end to end: a smaller prompt, a real SIGKILL."""

from pathlib import Path

import pytest
from conftest import Cli

TOKENS = 1000


def test_a_prefix_survives_kill_9(cli: Cli, tmp_path: Path) -> None:
    ended = cli("demo", "--dir", tmp_path / "kv", "--tokens", TOKENS, "--json")
    found = ended.json
    assert ended.status == 0, found
    assert found["ok"]
    assert found["same_tokens"]
    assert found["stored_blocks"] == TOKENS // 64
    assert found["hits"] == {"disk": TOKENS // 64, "host": TOKENS // 64}
    assert found["wrong_blocks"] == 0
    killed = found["killed"]
    assert killed["answered_and_lost"] == 0
    cut = killed["unanswered_cut_off"] + killed["unanswered_absent"]
    assert cut >= 1, "the kill came in the middle of a put"
    assert found["check"]["damaged"] == 0
    assert found["check"]["objects"] >= TOKENS // 64 + 32 * killed["puts_answered"]


def test_it_tells_the_story_and_what_to_try_next(cli: Cli, tmp_path: Path) -> None:
    ended = cli("demo", "--dir", tmp_path / "kv", "--tokens", TOKENS)
    assert ended.status == 0
    for words in ("SIGKILL", "the same in both", "bytes per token", "0 of them lost", "Try next"):
        assert words in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80 + len(str(tmp_path))


def test_a_prompt_that_the_model_cannot_hold_is_refused(cli: Cli, tmp_path: Path) -> None:
    ended = cli("demo", "--dir", tmp_path, "--tokens", 9000)
    assert ended.status == 2
    assert "--tokens 9000: must be from 128 to 8000" in ended.err


@pytest.mark.torch
def test_through_transformers(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    pytest.importorskip("transformers", reason="needs transformers")
    ended = cli("demo", "--torch", "--dir", tmp_path / "kv", "--tokens", 300, "--json")
    found = ended.json
    assert ended.status == 0, found
    assert found["same_tokens"]
    assert (found["usable"], found["logical"], found["physical"]) == (256, "960", "961")
    assert found["hits"]["disk"] == 4
