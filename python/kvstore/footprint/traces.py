"""Reading request traces: JSON Lines with block ids, or a prefix repeated in many calls."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Request:
    """One request: its lengths in tokens, and the ids of its prompt's blocks in order. Equal ids
    stand for equal blocks after equal prefixes."""

    prompt_tokens: int
    output_tokens: int
    blocks: Sequence[int]


@dataclass(frozen=True)
class Trace:
    """Requests in order, and the tokens of one block id."""

    name: str
    block_tokens: int
    requests: Iterable[Request]


_REPEATED = re.compile(r"prefix:(\d+)x(\d+)")


def open_trace(name: str, block_tokens: int | None = None) -> Trace:
    """A trace file (.jsonl or .jsonl.gz), or "prefix:TOKENSxCALLS" for one prefix of so many
    tokens, each call with one token more of its own."""
    repeated = _REPEATED.fullmatch(name)
    if repeated:
        return _repeated(name, int(repeated[1]), int(repeated[2]), block_tokens or 64)
    path = Path(name)
    if block_tokens is None:
        block_tokens = _block_tokens(path)
    return Trace(path.name, block_tokens, _requests(path))


def _repeated(name: str, tokens: int, calls: int, block: int) -> Trace:
    ids = list(range(-(-tokens // block)))
    requests = [Request(tokens + 1, 0, ids) for _ in range(calls)]
    return Trace(name, block, requests)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: no JSON object: {error}") from error
            if not isinstance(row, dict):
                raise ValueError(f"{path}:{number}: a JSON object is expected")
            yield row


def _ids(row: dict[str, Any]) -> Sequence[int]:
    if "runs" in row:
        return [block for first, count in row["runs"] for block in range(first, first + count)]
    ids = row.get("hash_ids")
    if not isinstance(ids, list):
        raise ValueError(
            "hash_ids must be a list of block ids in prompt order (or runs of them): a trace whose "
            "ids name components, not prefixes, has no prefix hits to bill"
        )
    return ids


def _requests(path: Path) -> Iterator[Request]:
    for number, row in enumerate(_lines(path), 1):
        try:
            prompt, output = int(row["input_length"]), int(row.get("output_length") or 0)
            yield Request(prompt, output, _ids(row))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}:{number}: {error}") from error


def _block_tokens(path: Path) -> int:
    """The block size that the lengths of the first requests allow: a power of two. Traces whose
    lengths are estimates fit none exactly; then it is the one nearest to the mean, within 5%."""
    low, high, blocks, tokens = 1, 1 << 20, 0, 0
    for request in islice(_requests(path), 1_000):
        count, length = len(request.blocks), request.prompt_tokens
        if count > 1:
            low = max(low, -(-length // count))
            high = min(high, (length - 1) // (count - 1))
            blocks, tokens = blocks + count, tokens + length
    sizes = [1 << i for i in range(21)]
    fitting = [size for size in sizes if low <= size <= high]
    if not fitting and blocks:
        fitting = [size for size in sizes if abs(tokens / blocks / size - 1) < 0.05]
    if not fitting or not blocks:
        raise ValueError(f"{path}: its lengths tell no block size: give --block TOKENS")
    return fitting[0]
