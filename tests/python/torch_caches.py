"""What the tests of the PyTorch hooks share: models, prompts, and live caches to compare with."""

from __future__ import annotations

import copy
import os
from typing import Any

import kvstore
import torch
from kvstore.models.deepseek import RowCache
from kvstore.torch import Policy, PrefixCache
from kvstore.torch.binding import Binding

#: All cuts from 1 to LONGEST instead of boundary lengths and seeded ones: `make test-exhaustive`.
EXHAUSTIVE = os.environ.get("KVSTORE_EXHAUSTIVE") == "1"
LONGEST = 300
#: What follows on a restored prefix: a chunk past every window and pooling group, then single steps
#: (restore faults of other engines appeared only 128 or 129 tokens later).
STEPS = (129, 1, 1, 1)
#: Resume points at every block end.
EVERYWHERE = Policy(every=1, windows="all")
SMALL: dict[str, Any] = {"host_bytes": "64 MiB", "disk_bytes": "512 MiB", "objects": 20_000}


def prompt(tokens: int, seed: int = 0) -> torch.Tensor:
    """Token ids [1, tokens]."""
    made = torch.Generator().manual_seed(seed)
    return torch.randint(3, 255, (1, tokens), generator=made)


def cuts(seed: int) -> list[int]:
    """Prompt lengths: those at which groups, blocks and windows end, and 16 seeded ones."""
    if EXHAUSTIVE:
        return list(range(1, LONGEST + 1))
    edges = {1, 3, 4, 5, 63, 64, 65, 127, 128, 129, 131, 191, 192, 193, 255, 256, 257, 300}
    made = torch.Generator().manual_seed(seed)
    return sorted(edges | set(torch.randint(1, LONGEST + 1, (16,), generator=made).tolist()))


def continued(
    binding: Binding, cache: Any, ids: torch.Tensor, start: int, end: int
) -> torch.Tensor:
    """Logits of the tokens start..end in one chunk, then of STEPS, [calls, vocabulary]."""
    logits = []
    at = start
    for count in (end - start, *STEPS):
        logits.append(binding.forward(ids[:, at : at + count], cache, at))
        at += count
    return torch.cat(logits)


class LiveCaches:
    """Live caches that were prefilled block by block, by their length."""

    def __init__(self, binding: Binding, ids: torch.Tensor) -> None:
        self._binding, self._ids = binding, ids
        self._kept: dict[int, Any] = {0: binding.new_cache()}

    def at(self, length: int) -> Any:
        """A copy of the cache after ``length`` tokens, a multiple of the block."""
        block = self._binding.layout.block_tokens
        if length not in self._kept:
            cache = self.at(length - block)
            chunk = self._ids[:, length - block : length]
            self._binding.forward(chunk, cache, length - block)
            self._kept[length] = cache
        kept = self._kept[length]
        return kept.copy() if isinstance(kept, RowCache) else copy.deepcopy(kept)


def opened(path: Any, **options: Any) -> kvstore.Store:
    """A store large enough for toy models."""
    return kvstore.open(path, **(SMALL | options))


def stored_everywhere(store: kvstore.Store, model: Any, **options: Any) -> PrefixCache:
    """A prefix cache that keeps every resume point."""
    return PrefixCache(store, model, policy=EVERYWHERE, **options)


def kinds(prefix: PrefixCache) -> set[str]:
    """Kinds of the groups of which objects keep anything."""
    return {kind for kind in ("entries", "window", "state") if prefix.binding.objects.places(kind)}


def honest(prefix: PrefixCache, ids: torch.Tensor) -> int:
    """Tokens of a prompt that are restored, after a look at what follows on them: it must be what
    follows on a cache that was computed for these tokens."""
    ids = torch.cat([ids, prompt(5, seed=77)], dim=1)
    binding, block = prefix.binding, prefix.layout.block_tokens
    cache, usable = prefix.restore(ids)
    live = binding.new_cache()
    for start in range(0, usable, block):
        binding.forward(ids[:, start : start + block], live, start)
    rest = ids[:, usable:]
    got, want = binding.forward(rest, cache, usable), binding.forward(rest, live, usable)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    return usable
