"""Prompts for the demo model: pieces of Python's own standard library."""

from __future__ import annotations

import random
from pathlib import Path

from kvstore.models.demo import corpus

__all__ = ["prompts"]


def prompts(n_tokens: int = 6000, seed: int = 0, count: int = 1) -> list[bytes]:
    """`count` prompts of exactly `n_tokens` bytes (a byte is a token), each from another file.

    The same arguments give the same prompts on the same Python. Where its sources are absent
    (stripped or zipped installations), or too few files are long enough, the text is made up from
    the seed instead.
    """
    if n_tokens < 1 or count < 0:
        raise ValueError(f"n_tokens {n_tokens} must be positive and count {count} not negative")
    chance = random.Random(seed)
    files = [path for path in corpus.source_files() if path.stat().st_size >= n_tokens]
    chance.shuffle(files)
    found = [_cut(path, n_tokens, chance) for path in files[:count]]
    while len(found) < count:
        found.append(_made_up(n_tokens, chance))
    return found


def _cut(path: Path, n_tokens: int, chance: random.Random) -> bytes:
    """`n_tokens` bytes of the file, from the beginning of a line where the file is long enough."""
    data = path.read_bytes()
    last = len(data) - n_tokens
    start = data.rfind(b"\n", 0, chance.randint(0, last)) + 1
    return data[start : start + n_tokens]


_NAMES = ("buffer", "cursor", "entry", "index", "limit", "offset", "queue", "record", "total")
_LINES = (
    "def {a}_{b}({a}, {c}=None):\n",
    '    """Return the {a} of the {b}, or None."""\n',
    "    if {a} is None:\n        raise ValueError('no {a}')\n",
    "    {c} = self.{a}.get({b}, {n})\n",
    "    for {a} in {b}:\n        {c}.append({a} + {n})\n",
    "    return {c}\n\n\n",
)


def _made_up(n_tokens: int, chance: random.Random) -> bytes:
    """Text in the shape of Python source."""
    parts: list[str] = []
    size = 0
    while size < n_tokens:
        for line in _LINES:
            a, b, c = chance.sample(_NAMES, 3)
            parts.append(line.format(a=a, b=b, c=c, n=chance.randrange(1000)))
            size += len(parts[-1])
    return "".join(parts).encode("ascii")[:n_tokens]
