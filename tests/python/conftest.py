"""What the Python tests share: where the trace files are, and the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kvstore.cli import main

# Before anybody imports numpy or torch: these matrices are small, and threads that wait
# for each other on a busy machine take ten times as long as one that works.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parents[2]


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.out, self.err
        return json.loads(self.out)


Cli = Callable[..., Ended]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs one command line in this process."""

    def run(*words: object) -> Ended:
        capsys.readouterr()
        try:
            status = main([str(word) for word in words])
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        return Ended(status, *capsys.readouterr())

    return run


@pytest.fixture
def shared() -> Path:
    """The folder of traces and vectors beside the checkout."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"needs trace files and vectors in {folder}")
    return folder


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of four requests over seven blocks."""
    path = tmp_path / "small.jsonl"
    requests = [[1, 2, 3], [1, 2, 4, 5], [9], [1, 2, 3, 6]]
    with path.open("w") as file:
        for n, ids in enumerate(requests):
            request = {"timestamp": n, "input_length": 64, "output_length": 1, "hash_ids": ids}
            file.write(json.dumps(request) + "\n")
    return path
