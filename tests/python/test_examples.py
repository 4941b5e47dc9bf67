"""The examples run, as they stand."""

from __future__ import annotations

import logging
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

EXAMPLES = sorted(p for p in (ROOT / "examples").glob("*.py") if p.name != "common.py")


@pytest.fixture(autouse=True)
def _as_a_script(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [str(ROOT / "examples"), *sys.path])
    yield
    sys.modules.pop("common", None)
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("example", EXAMPLES, ids=[p.stem for p in EXAMPLES])
def test_it_runs(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out
