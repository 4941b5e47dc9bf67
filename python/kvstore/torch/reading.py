"""Reading what a plan names: into host memory, or by way of a device pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

import kvstore
from kvstore.torch.pool import DevicePool

__all__ = ["Read", "read_host", "read_pool"]

Ids = np.ndarray[Any, np.dtype[np.int64]]
ExtraKeys = Mapping[int, bytes | Sequence[bytes]] | None


class Read(NamedTuple):
    """What was got of a prompt: objects as uint8 [objects, bytes], in memory of the caller's."""

    plan: kvstore.Plan
    bodies: torch.Tensor
    windows: torch.Tensor
    #: One checkpoint or none.
    checkpoint: torch.Tensor


def read_host(ns: kvstore.Namespace, ids: Ids, extra_keys: ExtraKeys, approximate: bool) -> Read:
    """Everything from the store, in one verified copy."""
    plan = ns.match(ids, extra_keys, allow_approximate=approximate)
    buffer = torch.empty(plan.read_bytes, dtype=torch.uint8)
    plan = ns.get_into(plan, buffer)
    layout, at = ns.layout, 0
    cut = []
    for count, nbytes in (
        (plan.bodies[1] - plan.bodies[0], layout.body_bytes),
        (plan.windows[1] - plan.windows[0], layout.window_bytes),
        (int(plan.checkpoint is not None), layout.checkpoint_bytes),
    ):
        cut.append(buffer[at : at + count * nbytes].view(count, nbytes))
        at += count * nbytes
    return Read(plan, *cut)


def read_pool(
    pool: DevicePool, ns: kvstore.Namespace, ids: Ids, extra_keys: ExtraKeys, approximate: bool
) -> Read:
    """Bodies from the pool's slots, those that it does not hold from the store first."""
    layout = ns.layout
    with pool.fetch(ids, extra_keys, allow_approximate=approximate) as fetched:
        plan = fetched.plan
        for _ in fetched.layers():
            pass  # each layer's copies are queued; the gather below waits for the last of them
        bodies = pool.bodies[fetched.slots]
        windows = [_joined(fetched.lease, block, "window") for block in range(*plan.windows)]
        checkpoint = [] if plan.checkpoint is None else [_joined(fetched.lease, 0, "checkpoint")]
    return Read(
        plan,
        bodies,
        _stacked(windows, layout.window_bytes),
        _stacked(checkpoint, layout.checkpoint_bytes),
    )


def _joined(lease: kvstore.Lease, block: int, area: str) -> torch.Tensor:
    """A copy of an object, whose parts are joined: uint8 [bytes]."""
    return torch.cat([from_dlpack(part) for part in lease.parts(block, area)])


def _stacked(objects: list[torch.Tensor], nbytes: int) -> torch.Tensor:
    return torch.stack(objects) if objects else torch.empty(0, nbytes, dtype=torch.uint8)
