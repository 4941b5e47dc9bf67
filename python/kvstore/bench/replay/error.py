"""Logits behind a replayed cut beside those behind the live cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kvstore.bench.replay.subjects import PIECES, Stored, Subject, continued, stored
from kvstore.models.deepseek import RowCache

__all__ = ["DISTANCES", "Measured", "bounded", "compare", "measure_error"]

#: Tokens behind the cut, in stretches (first, end): the first is the token that hits.
DISTANCES = ((0, 1), (1, 16), (16, 64), (64, 128), (128, 256), (256, 384))


@dataclass(slots=True)
class Measured:
    """Rows of the report that a subject adds."""

    #: By cut and distance: how far bounded replay is from exact.
    error: list[dict[str, Any]] = field(default_factory=list)
    #: By mode: of how many cuts the logits have the live cache's bits.
    exact: list[dict[str, Any]] = field(default_factory=list)


def measure_error(subject: Subject, ids: Sequence[Tensor], cuts: Sequence[int]) -> Measured:
    """Every text cut at every cut, a block end: restored with its windows, replayed exactly where
    the prompt is long enough, and replayed bounded; then continued with the text itself."""
    model = subject.model
    exact: list[tuple[str, bool]] = []
    live, near, follow = ({cut: list[Tensor]() for cut in cuts} for _ in range(3))
    for text in ids:
        with stored(model, text, max(cuts) + 1, cuts) as s:
            for cut in cuts:
                wanted = continued(model, s.live[cut].copy(), text, cut)
                exact += [(mode, torch.equal(wanted, got)) for mode, got in _exact(s, cut)]
                near[cut].append(continued(model, bounded(s, cut), text, cut))
                live[cut].append(wanted)
                follow[cut].append(text[0, cut + 1 : cut + 1 + sum(PIECES)])
    measured = Measured()
    for mode in dict.fromkeys(mode for mode, _ in exact):
        equal = [same for found, same in exact if found == mode]
        measured.exact.append(
            subject.named() | {"mode": mode, "cuts": len(equal), "equal": sum(equal)}
        )
    for cut in cuts:
        for first, end in DISTANCES:
            parts = [torch.cat([t[first:end] for t in of[cut]]) for of in (live, near, follow)]
            row = {"cut": cut, "first": first, "end": end, "texts": len(ids)}
            measured.error.append(subject.named() | row | compare(*parts))
    return measured


def _exact(s: Stored, cut: int) -> list[tuple[str, Tensor]]:
    """(mode, logits) of each exact mode that the store offers at this cut."""
    found = []
    for prefix in (s.exact, s.entries_only):
        plan = prefix.namespace.match(s.at(cut)[0].numpy())
        if plan.usable == cut:
            cache, _ = prefix.restore(s.at(cut))
            found.append((plan.mode, continued(prefix.model, cache, s.ids, cut)))  # type: ignore[arg-type]
    return found


def bounded(s: Stored, cut: int) -> RowCache:
    """A cache after a bounded replay: through the store where the layout allows one, else by the
    model itself over the live cache's entries."""
    prefix = s.entries_only
    if prefix.layout.bounded_replay_tokens is not None:
        cache, usable = prefix.restore(s.at(cut), allow_approximate=True)
        assert usable == cut
        return cache  # type: ignore[no-any-return]
    cache = s.live[cut].only("entries")
    start = prefix.model.replay_start(cut)  # type: ignore[operator]
    prefix.model.replay(s.ids[:, start:cut], cache, start)  # type: ignore[operator]
    return cache


def compare(exact: Tensor, near: Tensor, follow: Tensor) -> dict[str, float]:
    """Figures of logits [T, vocab] beside exact ones, and of the tokens that follow, int64 [T].

    Differences are over the standard deviation of the exact logits, divergence is KL(exact || near)
    in nats, agreement the share of equal first choices, bits those per token of the text.
    """
    p, q = exact.double().log_softmax(-1), near.double().log_softmax(-1)
    difference = (near - exact).abs() / exact.std()
    divergence = (p.exp() * (p - q)).sum(-1)
    figures = {
        "difference": difference.mean(),
        "difference_max": difference.max(),
        "kl": divergence.mean(),
        "kl_max": divergence.max(),
        "agreement": (exact.argmax(-1) == near.argmax(-1)).double().mean(),
        "bits_exact": F.nll_loss(p, follow) / math.log(2),
        "bits_replayed": F.nll_loss(q, follow) / math.log(2),
    }
    return {"tokens": len(exact)} | {n: float(f"{float(v):.5g}") for n, v in figures.items()}
