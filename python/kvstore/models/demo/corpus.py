"""The text of the demo model: the source of Python's own standard library.

Every CPython ships it, it needs no download, and it repeats itself the way real prompts do
(licences, imports, docstrings). The order of files is that of their names, so "the last two per
cent" means the same bytes on each machine that has the same Python.
"""

from __future__ import annotations

import os
import platform
import sysconfig
from pathlib import Path

__all__ = ["END_OF_FILE", "HELD_OUT", "describe", "source_files", "split", "text"]

END_OF_FILE = 0
"""The byte that ends each file; it does not occur in Python source, so it serves as EOS."""

HELD_OUT = 0.02
"""Share of the text, counted from its end, that training never sees."""

# Tests and tables (encodings, pydoc topics) would be two thirds of the bytes and are hardly
# language; lib2to3 and idlelib carry tests and generated text of their own. site-packages is not
# the standard library, and _sysconfigdata holds the paths of the machine that built Python.
_SKIPPED_FOLDERS = frozenset(
    {
        "__pycache__",
        "dist-packages",
        "encodings",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "site-packages",
        "test",
        "tests",
    }
)
_SKIPPED_PREFIX = "_sysconfigdata"


def source_files(root: Path | None = None) -> list[Path]:
    """The corpus's files below `root` (default: the running Python's library), in name order."""
    base = Path(sysconfig.get_paths()["stdlib"]) if root is None else root
    found: list[Path] = []
    for folder, below, names in os.walk(base):
        below[:] = [name for name in below if name not in _SKIPPED_FOLDERS]  # not walked into
        found += [
            Path(folder, name)
            for name in names
            if name.endswith(".py") and not name.startswith(_SKIPPED_PREFIX)
        ]
    return sorted(found, key=lambda path: path.relative_to(base).as_posix())


def text(root: Path | None = None) -> bytes:
    """All files in order, each followed by END_OF_FILE. Empty where the library has no source."""
    end = bytes([END_OF_FILE])
    return b"".join(path.read_bytes() + end for path in source_files(root))


def split(data: bytes) -> tuple[bytes, bytes]:
    """(text to train on, text kept apart): the last HELD_OUT of the bytes are kept apart."""
    cut = len(data) - int(len(data) * HELD_OUT)
    return data[:cut], data[cut:]


def describe() -> str:
    """One line for logs and for the weights' metadata; it names no place on this machine."""
    files = source_files()
    size = sum(path.stat().st_size + 1 for path in files)
    return (
        f"{platform.python_implementation()} {platform.python_version()} standard library, "
        f"{len(files)} .py files, {size} bytes without "
        "tests, encodings, idlelib, lib2to3, pydoc_data"
    )
