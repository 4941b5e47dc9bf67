"""Digests of files, remembered between processes.

A digest holds for a file as long as device, inode, size, modification and change time are the
same: the change time is set by the kernel at each write and cannot be set back. A file changed
within the last two seconds is not remembered, since a write that follows at once might leave the
times as they are (they tick with the kernel's clock, 1 to 10 ms).
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

from kvstore._core import Blake3
from kvstore.errors import InvalidArgument

__all__ = ["Remembered"]

_CHUNK = 16 << 20
_KEPT = 4096
_SETTLED_NS = 2_000_000_000


class Remembered:
    """A small file of digests. What is damaged in it, or cannot be written, is not remembered."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        default = Path(home).expanduser() / "kvstore" / "weights.json"
        self.path = default if path is None else Path(path)

    def digests(self, files: list[Path]) -> list[bytes]:
        """BLAKE3 of each file, read only where it is not remembered. OSError as reading raises it;
        InvalidArgument names a file that changes meanwhile."""
        known = self._load()
        found, new = [], dict[str, str]()
        for file in files:
            key = _key(file.stat())
            if key not in known:
                digest = _read(file, key)
                if time.time_ns() - _changed(file) > _SETTLED_NS:
                    new[key] = digest.hex()
                found.append(digest)
            else:
                found.append(bytes.fromhex(known[key]))
        if new:
            self._save(known | new)
        return found

    def _load(self) -> dict[str, str]:
        try:
            read = json.loads(self.path.read_bytes())
            files = read["files"]
            if read["check"] != _check(files):
                return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}
        return dict(files)

    def _save(self, files: dict[str, str]) -> None:
        """Written beside and renamed: a reader sees the old file or the new one."""
        kept = dict(list(files.items())[-_KEPT:])
        text = json.dumps({"check": _check(kept), "files": kept}, indent=0)
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(text, encoding="utf-8")
            beside.replace(self.path)
        except OSError:  # next time the files are read again
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)


def _check(files: dict[str, str]) -> str:
    hasher = Blake3()
    hasher.update("\n".join(f"{key} {digest}" for key, digest in files.items()).encode())
    return hasher.digest().hex()


def _key(stat: os.stat_result) -> str:
    parts = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    return ":".join(map(str, parts))


def _changed(file: Path) -> int:
    stat = file.stat()
    return max(stat.st_mtime_ns, stat.st_ctime_ns)


def _read(file: Path, key: str) -> bytes:
    hasher = Blake3()
    buffer = bytearray(_CHUNK)
    with file.open("rb", buffering=0) as data:
        while count := data.readinto(buffer):
            hasher.update(memoryview(buffer)[:count])
        after = _key(os.fstat(data.fileno()))
    if after != key:
        raise InvalidArgument(f"{file} changed while it was read: try again when it is complete")
    return hasher.digest()
