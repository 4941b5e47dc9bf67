"""What each way to resume costs: planned at true geometry, and measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from kvstore.bench.replay.subjects import Stored, Subject, stored
from kvstore.layouts import Layout, resume_plan
from kvstore.torch import PrefixCache

__all__ = ["measure_cost", "planned"]


def planned(name: str, cut: int) -> list[dict[str, Any]]:
    """The plans of a prompt of this architecture with ``cut`` stored tokens and one more, at true
    geometry: tokens and layer-tokens to compute, bytes to read, bytes stored for the point."""
    layout = Layout.named(name)
    blocks = cut // layout.block_tokens
    kept = {"windows": set(range(blocks)), "checkpoints": {cut}}
    point = layout.resume_point_bytes()
    wanted: list[tuple[dict[str, Any], int]] = [(kept, point), ({}, 0)]
    if layout.bounded_replay_tokens is not None:
        wanted.append(({"allow_approximate": True}, 0))
    rows = []
    for options, stored_bytes in wanted:
        plan = resume_plan(layout, cut + 1, blocks, **options)
        if plan.usable == cut:
            rows.append(_row(plan, stored_bytes))
    rows.append(_cold(layout, cut))
    return [{"architecture": name, "cut": cut} | row for row in rows]


def _row(plan: Any, stored_bytes: int) -> dict[str, Any]:
    names = ("mode", "recompute_tokens", "recompute_layer_tokens", "read_bytes")
    return {name: getattr(plan, name) for name in names} | {"stored_bytes": stored_bytes}


def _cold(layout: Layout, cut: int) -> dict[str, Any]:
    tokens = cut + 1
    computed = {"recompute_tokens": tokens, "recompute_layer_tokens": tokens * layout.model_layers}
    return {"mode": "cold"} | computed | {"read_bytes": 0, "stored_bytes": 0}


def measure_cost(subject: Subject, ids: Tensor, cut: int, rounds: int) -> list[dict[str, Any]]:
    """Seconds from a prompt to its first logits in each mode, one token behind the cut.

    Every round takes each mode once, the order turned by one from round to round, and gives the
    ratio to the round's cold prefill. Medians and quartiles of seconds and ratios. Thread CPU time
    stands beside the wall's: other work on the machine makes the latter longer.
    """
    with stored(subject.model, ids, cut + 1, [cut]) as s:
        modes = _modes(s, cut)
        seconds: dict[str, list[tuple[float, float]]] = {mode: [] for mode in modes}
        for index in range(rounds):
            names = list(modes)
            for mode in names[index % len(names) :] + names[: index % len(names)]:
                begun = time.perf_counter(), time.thread_time()
                modes[mode][0]()
                ended = time.perf_counter(), time.thread_time()
                seconds[mode].append((ended[0] - begun[0], ended[1] - begun[1]))
        rows = []
        cold = np.array(seconds["cold"])
        for mode, (_, planned_row) in modes.items():
            found = np.array(seconds[mode])
            row: dict[str, Any] = subject.named() | {"cut": cut, "rounds": rounds}
            row |= planned_row | {"mode": mode}
            for name, values in (("wall", found[:, 0]), ("cpu", found[:, 1])):
                row |= _quartiles(f"{name}_seconds", values)
            row |= _quartiles("wall_ratio", found[:, 0] / cold[:, 0])
            rows.append(row | _quartiles("cpu_ratio", found[:, 1] / cold[:, 1]))
        return rows


def _quartiles(name: str, values: Any) -> dict[str, float]:
    q1, median, q3 = (float(f"{v:.4g}") for v in np.quantile(values, [0.25, 0.5, 0.75]))
    return {name: median, f"{name}_q1": q1, f"{name}_q3": q3}


def _modes(s: Stored, cut: int) -> dict[str, tuple[Callable[[], object], dict[str, Any]]]:
    """What to call for each mode, and what its plan says."""
    binding, layout, ids = s.exact.binding, s.exact.layout, s.at(cut)

    def last(cache: Any) -> None:
        binding.forward(ids[:, cut:], cache, cut)

    def cold() -> None:
        cache = binding.new_cache()
        for at in range(0, cut, layout.block_tokens):
            binding.forward(ids[:, at : at + layout.block_tokens], cache, at)
        last(cache)

    def resume(prefix: PrefixCache, approximate: bool) -> None:
        last(prefix.restore(ids, allow_approximate=approximate)[0])

    modes: dict[str, tuple[Callable[[], object], dict[str, Any]]] = {}
    for prefix, approximate, kept in (
        (s.exact, False, layout.window_bytes + layout.checkpoint_bytes),
        (s.entries_only, False, 0),
        (s.entries_only, True, 0),
    ):
        plan = prefix.namespace.match(ids[0].numpy(), allow_approximate=approximate)
        if plan.usable == cut:
            modes[plan.mode] = partial(resume, prefix, approximate), _row(plan, kept)
    modes["cold"] = cold, _cold(layout, cut)
    return modes
