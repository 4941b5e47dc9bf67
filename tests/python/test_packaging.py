"""What the wheel and the source archive hold besides code."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: What maturin takes by itself, what Python leaves behind, and records for readers of the source.
OTHER = {".py", ".pyi", ".so", ".pyc", ".typed", ".log"}
DATA = [
    path.relative_to(ROOT)
    for path in sorted((ROOT / "python/kvstore").rglob("*"))
    if path.is_file() and path.suffix not in OTHER
]


def test_the_package_has_data() -> None:
    names = {path.name for path in DATA}
    assert {"prices.toml", "record.toml"} <= names


@pytest.mark.parametrize("path", DATA, ids=str)
def test_every_data_file_is_packed(path: Path) -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]
    kinds = {
        kind
        for rule in build["include"]
        if fnmatch(str(path), rule["path"].replace("**/", "*"))
        for kind in rule["format"]
    }
    assert kinds == {"sdist", "wheel"}
