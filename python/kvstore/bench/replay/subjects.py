"""What is measured on: models, texts, and stores with and without windows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import kvstore
from kvstore.models.deepseek import ReferenceModel, RowCache
from kvstore.torch import Policy, PrefixCache

__all__ = ["KINDS", "PIECES", "Stored", "Subject", "continued", "random_ids", "stored", "texts"]

#: What follows on a restored prefix: more than a window in one pass, single tokens (faults of
#: restored caches have shown only there), then two more windows.
PIECES = (129, 1, 1, 1, 252)

KINDS = ("entries", "window", "state")


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, and the names under which its figures stand."""

    model: ReferenceModel
    architecture: str
    #: "toy" or "true": of how many layers.
    geometry: str
    #: How the weights came about.
    weights: str

    def named(self) -> dict[str, str]:
        """The columns that say what a figure is of."""
        return {
            "architecture": self.architecture,
            "geometry": self.geometry,
            "weights": self.weights,
            "form": self.model.form,
        }


@dataclass(slots=True)
class Stored:
    """One text in a store, twice: with what resumes it as it was, and with entries only."""

    ids: Tensor
    exact: PrefixCache
    entries_only: PrefixCache
    #: Live caches as they were at the cuts.
    live: dict[int, RowCache] = field(default_factory=dict)

    def at(self, cut: int) -> Any:
        """The prompt that is cut there: one token is left to compute."""
        return self.ids[:, : cut + 1]


@contextmanager
def stored(model: Any, ids: Tensor, length: int, cuts: Sequence[int]) -> Iterator[Stored]:
    """The first ``length`` tokens of a text, computed block by block and stored in both ways. The
    live cache is kept at the cuts, which are block ends."""
    with (
        tempfile.TemporaryDirectory() as folder,
        kvstore.open(folder, host_bytes="256 MiB", disk_bytes="1 GiB", objects=20_000) as store,
    ):
        block = PrefixCache(store, model, cache_salt="block").layout.block_tokens
        every = Policy(every=block, windows="trailing")
        exact = PrefixCache(store, model, policy=every, cache_salt="resumed as it was")
        never = PrefixCache(store, model, policy=Policy.never(), cache_salt="entries only")
        made = Stored(ids, exact, never)
        with exact.session(ids[:, :length], prefill=False, follow=False) as session:
            while session.length + block <= length:
                session.compute(block)
                if session.length in cuts:
                    # Rows are never written in place: sharing them is a copy.
                    made.live[session.length] = session.cache.only(*KINDS)
        session.saved.wait(60)
        never.save(ids[:, :length], session.cache).wait(60)
        yield made


def continued(model: ReferenceModel, cache: RowCache, ids: Tensor, start: int) -> Tensor:
    """Logits [sum of PIECES, vocab] of what follows on ``start`` tokens, the text given."""
    logits, at = [], start
    for tokens in PIECES:
        logits.append(model(ids[:, at : at + tokens], cache)[0])
        at += tokens
    return torch.cat(logits)


def texts(data: Tensor, count: int, length: int) -> list[Tensor]:
    """Stretches of ``length`` tokens, evenly over int64 [bytes]: int64 [1, length] each."""
    step = (len(data) - length) // max(count, 1)
    return [data[i * step : i * step + length][None] for i in range(count)]


def random_ids(tokens: int, seed: int) -> Tensor:
    """int64 [1, tokens] below 256, reproducible."""
    return torch.randint(0, 256, (1, tokens), generator=torch.Generator().manual_seed(seed))
