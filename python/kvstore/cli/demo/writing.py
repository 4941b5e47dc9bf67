"""The first process: prefill, generate, store, and store on until it is killed."""

from __future__ import annotations

from collections import deque
from itertools import count
from pathlib import Path

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

__all__ = ["write"]


def write(directory: Path, tokens: int, tenant: str) -> None:
    """Reports each step as a line of JSON on standard output. It never ends by itself."""
    clock = Clock()
    model = load_model(clock)
    with clock.time("open"):
        store = open_store(directory)
    ns = namespace(store, model, tenant)
    prompt = long_prompt(tokens)
    cache = model.new_cache()
    json_line({"step": "ready", "seconds": clock.seconds})

    with clock.time("prefill"):
        logits = model.prefill(prompt, cache)
    json_line({"step": "prefilled", "seconds": clock.seconds["prefill"]})

    bodies = cache.bodies(0, tokens // cache.layout.block_tokens)
    with clock.time("store"):
        batch = ns.put(prompt, bodies, ack="ssd")
        batch.wait(60)
    json_line(
        {
            "step": "stored",
            "seconds": clock.seconds["store"],
            "whole": batch.status.accepted,
            "bytes": bodies.nbytes,
            "digests": digests(bodies),
        }
    )
    generated = model.generate(logits[-1], cache, GENERATED)
    json_line({"step": "generated", "tokens": generated})

    others = []
    for other in other_prompts():
        cache = model.new_cache(len(other))
        model.prefill(other, cache)
        others.append((other, cache.bodies(0, len(other) // cache.layout.block_tokens)))
    json_line({"step": "prepared", "digests": [digests(bodies) for _, bodies in others]})

    # Each turn is another tenant, whose keys are all new: there is always something to store.
    under_way: deque[tuple[int, int, kvstore.Batch]] = deque()
    for turn in count():
        ns = namespace(store, model, tenant_of(tenant, turn))
        for number, (other, bodies) in enumerate(others):
            json_line({"step": "begun", "turn": turn, "prompt": number})
            under_way.append((turn, number, ns.put(other, bodies, ack="ssd")))
            while under_way and under_way[0][2].done:
                of, which, batch = under_way.popleft()
                if batch.status.accepted:
                    json_line({"step": "answered", "turn": of, "prompt": which})
