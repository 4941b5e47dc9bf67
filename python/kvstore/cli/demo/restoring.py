"""The second process: open, restore, generate, and look at what the kill left of the rest."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kvstore
from kvstore.cli.demo.shop import (
    GENERATED,
    Clock,
    digests,
    load_model,
    long_prompt,
    namespace,
    open_store,
    other_prompts,
    tenant_of,
)
from kvstore.cli.output import json_line
from kvstore.models import MlaCache, MlaDecoder

__all__ = ["restore"]


def restore(directory: Path, tokens: int, tenant: str) -> None:
    """Reads what the first process told on standard input, one JSON object; prints another."""
    told = json.load(sys.stdin)
    clock = Clock()
    model = load_model(clock)
    with clock.time("open"):
        store = open_store(directory)
    ns = namespace(store, model, tenant)
    prompt = long_prompt(tokens)
    # From disk first; that leaves the blocks in host memory for the second time.
    runs = {tier: _restore(ns, model, prompt, told["digests"]) for tier in ("disk", "host")}

    prompts = other_prompts()
    others = []
    for turn, number in told["begun"]:
        ns = namespace(store, model, tenant_of(tenant, turn))
        _, bodies = _read(ns, prompts[number], model.new_cache(len(prompts[number])))
        expected = told["others"][number]
        others.append(
            {
                "turn": turn,
                "prompt": number,
                "whole": len(bodies) == len(expected),
                "blocks": len(bodies),
                "wrong_blocks": _wrong(bodies, expected),
            }
        )
    store.close()
    json_line({"seconds": clock.seconds, "runs": runs, "others": others})


def _restore(
    ns: kvstore.Namespace, model: MlaDecoder, prompt: bytes, expected: list[str]
) -> dict[str, Any]:
    """The long prompt's cache from the store, the tokens behind it, and how long it took."""
    clock = Clock()
    with clock.time("restore"):
        cache = model.new_cache()
        plan, bodies = _read(ns, prompt, cache)
        cache.load_bodies(0, bodies)
    with clock.time("rest"):
        usable = cache.length
        logits = model.prefill(prompt, cache, start=usable)
    return {
        "hits": {"disk": plan.disk_blocks, "host": plan.host_blocks},
        "usable": usable,
        "wrong_blocks": _wrong(bodies, expected),
        "tokens": model.generate(logits[-1], cache, GENERATED),
        "seconds": clock.seconds,
    }


def _read(
    ns: kvstore.Namespace, prompt: bytes, cache: MlaCache
) -> tuple[kvstore.Plan, NDArray[np.uint8]]:
    """What a match found of a prompt, and the bodies that could then be read."""
    plan = ns.match(np.frombuffer(prompt, np.uint8))
    bodies = np.empty((plan.usable // cache.layout.block_tokens, cache.layout.body_bytes), np.uint8)
    got = ns.get_into(plan, bodies)
    return plan, bodies[: got.usable // cache.layout.block_tokens]


def _wrong(bodies: NDArray[np.uint8], expected: list[str]) -> int:
    """Blocks whose bytes are not what the first process stored."""
    return sum(found != told for found, told in zip(digests(bodies), expected, strict=False))
