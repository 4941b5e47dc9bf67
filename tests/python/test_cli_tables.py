"""kvstore footprint, layouts, bill, codec and bench as commands: JSON, files, exit status."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Cli


def test_footprint(cli: Cli, tmp_path: Path) -> None:
    found = cli("footprint", "deepseek-v4.1-flash", "--json").json
    rows = {row["basis"]: row["bytes_per_token"] for row in found["rows"]}
    assert (rows["body"], rows["slot"]) == ("890", "896")
    assert {"master", "persistent", "reads", "fit", "cost", "overhead"} <= set(found["tables"])
    out = tmp_path / "rows.json"
    assert cli("footprint", "deepseek-v4.1-flash", "--out", out).status == 0
    assert json.loads(out.read_text()) == found


def test_layouts(cli: Cli) -> None:
    names = [row["name"] for row in cli("layouts", "--json").json["architectures"]]
    assert {"deepseek-v4.1-flash", "llama-3-8b"} <= set(names)
    (row,) = cli("layouts", "deepseek-v4.1-flash", "--json").json["layouts"]
    assert row["body_bytes"] == 890 * 128
    assert "deepseek-v4.1-flash" in cli("layouts").out


def test_bill(cli: Cli, tmp_path: Path) -> None:
    words = ["bill", "prefix:32768x500", "--prices", "deepseek-v4.1-flash"]
    found = cli(*words, "--json").json
    assert (found["tokens"]["requests"], found["tokens"]["requests_with_a_hit"]) == (500, 499)
    assert cli(*words, "--out", tmp_path / "bill.csv").status == 0
    with (tmp_path / "bill.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(found["rows"])


def test_codec_report(cli: Cli, tmp_path: Path) -> None:
    words = ["codec", "report", "--rows", 64, "--preset", "mxfp4.rceil"]
    found = cli(*words, "--distribution", "keys", "--json").json
    (row,) = found["rows"]
    assert (row["data"], row["preset"], row["bits_per_element"]) == ("keys", "mxfp4.rceil", 4.25)
    assert [row["data"] for row in found["lossless"]] == ["keys"]
    assert cli("codec", "--json", *words[1:]).json["rows"], "--json stands where it likes"
    assert cli(*words, "--out", tmp_path / "rows.csv").status == 0
    with (tmp_path / "rows.csv").open() as file:
        assert [row["data"] for row in csv.DictReader(file)] == [
            "gaussian",
            "keys",
            "values",
            "latent",
        ]


def test_bench_codec(cli: Cli) -> None:
    """Whether a bar is met is the machine's affair: the status says the same as the rows."""
    words = ["bench", "codec", "--size", "1MiB", "--pairs", 1, "--level", "scalar"]
    ended = cli(*words, "--peer", "none", "--json")
    rows = ended.json["rows"]
    fields = ["bench", "size", "ratio", "q1", "q3", "pairs", "path", "bar", "met"]
    assert all(list(row) == [*fields, "ceiling"] for row in rows)
    assert ended.status == int(any(row["met"] is False for row in rows))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["footprint", "deepseek-v9"], "no architecture is called 'deepseek-v9'"),
        (["footprint", "--tokens", 0], "--tokens = 0 must be 1 or more"),
        (["footprint", "--out", "x.txt"], "must end in .csv, .parquet, .json or .html"),
        (["layouts", "deepseek-v9"], "no architecture is called 'deepseek-v9'"),
        (["layouts", "--toml", "nowhere.toml"], "nowhere.toml"),
        (["bill", "nowhere.jsonl", "--prices", "nobody"], "--prices 'nobody'"),
        (["codec"], "the following arguments are required"),
        (["codec", "repair"], "invalid choice: 'repair' (choose from 'report')"),
        (["codec", "report", "--preset", "fp3"], "fp3"),
        (["codec", "report", "--rows", 0], "--rows, --cols: 0, 128 given"),
        (["bench"], "the following arguments are required"),
        (["bench", "codec", "--size", 5], "whole MiB and at least one pair wanted"),
        (["bench", "codec", "--nothing"], "kvstore bench codec: error: unrecognized arguments"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_wrong_use_is_2_with_the_mend(cli: Cli, words: list[object], told: str) -> None:
    ended = cli(*words)
    assert (ended.status, ended.out) == (2, "")
    assert told in ended.err


@pytest.mark.parametrize("words", [["codec", "report"], ["bench", "codec"]])
def test_a_command_of_two_words_has_help(cli: Cli, words: list[str]) -> None:
    assert f"  {words[1]}  " in cli(words[0], "--help").out
    ended = cli(*words, "--help")
    assert ended.status == 0
    assert f"usage: kvstore {' '.join(words)}" in ended.out
    assert "--json" in ended.out


def test_without_numpy_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['numpy'] = None; from kvstore.cli import main; sys.exit(main())"
    words = [sys.executable, "-c", code, "codec", "report"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    wanted = "kvstore codec: report needs numpy: pip install 'kvstore-engine[numpy]'\n"
    assert ended.stderr == wanted
