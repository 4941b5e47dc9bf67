"""What both processes of the demo need: the model, the prompts, the store."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import kvstore
from kvstore.layouts import Group, Layout

if TYPE_CHECKING:
    from kvstore.models import MlaDecoder

__all__ = ["GENERATED", "OTHERS", "Clock", "digests", "load_model", "namespace", "open_store"]

GENERATED = 64
"""Tokens that each process generates behind the long prompt."""
OTHERS = 4
"""Further prompts that the first process stores, again and again for other tenants."""
OTHER_TOKENS = 2056


class Clock:
    """Seconds of named steps."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def time(self, step: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds[step] = time.perf_counter() - begin


def load_model(clock: Clock) -> MlaDecoder:
    """The built-in model; what it takes to import and load it is no part of any prefill."""
    with clock.time("imports"):
        from kvstore.models import demo
    with clock.time("model"):
        return demo.load()


def long_prompt(tokens: int) -> bytes:
    """The prompt whose prefix must survive."""
    from kvstore.models import demo

    return demo.prompts(tokens, seed=1)[0]


def other_prompts() -> list[bytes]:
    """The prompts of the second store."""
    from kvstore.models import demo

    return demo.prompts(OTHER_TOKENS, seed=2, count=OTHERS)


def open_store(directory: Path) -> kvstore.Store:
    """A small store: 1 GiB of disk, 256 MiB of host memory."""
    return kvstore.open(directory, host_bytes="256 MiB", disk_bytes="1 GiB")


def namespace(store: kvstore.Store, model: MlaDecoder, tenant: str) -> kvstore.Namespace:
    """The model's namespace, for one tenant: nothing is shared between tenants."""
    from kvstore.models import demo
    from kvstore.models.mla_cache import CacheLayout

    cache = CacheLayout.of(model.config)
    group = Group(cache.group, cache.record_bytes, list(range(cache.layers)), format="bf16")
    layout = Layout.by_hand("kvstore-demo", cache.block_tokens, [group])
    weights = hashlib.sha256(demo.weights_file().read_bytes()).digest()
    return store.namespace(layout, model="kvstore-demo", weights=weights, cache_salt=tenant)


def tenant_of(tenant: str, turn: int) -> str:
    """The tenant for whom all other prompts are stored in one turn."""
    return f"{tenant}/{turn}"


def digests(bodies: NDArray[np.uint8]) -> list[str]:
    """Of each body's bytes, to compare across processes."""
    return [hashlib.sha256(body).hexdigest() for body in bodies]
