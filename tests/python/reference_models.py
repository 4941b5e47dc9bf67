"""What the tests of `kvstore.models.deepseek` share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from kvstore.models.deepseek import NAMES, ReferenceModel, RowCache, build
from kvstore.models.deepseek.layouts import forms_of
from torch import Tensor

#: layouts.md, section 10: where ratios of 2, 4 and 128 and windows of 128 begin and end.
BOUNDARIES = (1, 3, 4, 5, 127, 128, 129, 131, 255, 256, 257)

#: One architecture of each mechanism, with the precisions that it has.
GENERATIONS = [name for name in NAMES if name not in ("deepseek-v2", "deepseek-v4-pro")]
CASES = [(name, form) for name in GENERATIONS for form in forms_of(name)]

_MODELS: dict[tuple[str, str], ReferenceModel] = {}


def toy(name: str, form: str) -> ReferenceModel:
    """A toy with seed 0. It is shared: who changes it builds one of their own."""
    key = name, form
    if key not in _MODELS:
        _MODELS[key] = build(name, toy=True, form=form)
    return _MODELS[key]


def tokens(count: int, seed: int = 1) -> Tensor:
    """int64 [1, count], reproducible."""
    return torch.randint(0, 256, (1, count), generator=torch.Generator().manual_seed(seed))


def pieces(ids: Tensor, cuts: Sequence[int]) -> Iterator[Tensor]:
    """ids [1, T] cut at the positions given."""
    for start, end in zip((0, *cuts), (*cuts, ids.shape[1]), strict=True):
        yield ids[:, start:end]


def feed(model: ReferenceModel, ids: Tensor, cache: RowCache, cuts: Sequence[int] = ()) -> Tensor:
    """Logits [T, vocab] of a prompt that is given piece by piece."""
    return torch.cat([model(piece, cache)[0] for piece in pieces(ids, cuts)])


def same_rows(a: RowCache, b: RowCache) -> bool:
    """Whether two caches have the same bytes in every plane of every group and layer."""
    return a.rows.keys() == b.rows.keys() and all(
        len(a.rows[key]) == len(b.rows[key])
        and all(
            x.shape == y.shape and torch.equal(octets(x), octets(y))
            for x, y in zip(a.rows[key], b.rows[key], strict=True)
        )
        for key in a.rows
    )


def octets(rows: Tensor) -> Tensor:
    """The bytes of rows [n, ...]: uint8 [n, bytes of a row]."""
    return rows.contiguous().view(torch.uint8).flatten(1)
