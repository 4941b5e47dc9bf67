"""The two processes of a measurement, each with the model: one stores, one goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, NoReturn

import torch

import kvstore
from kvstore._core import Layout
from kvstore.cli.output import json_line
from kvstore.footprint.costs import DESCRIPTOR
from kvstore.footprint.measured.keeping import TAIL, Keeping, chunk_tokens
from kvstore.footprint.measured.models import Made, make
from kvstore.torch import Policy, PrefixCache, Unsupported, fingerprint

__all__ = ["restore", "write"]

#: Seconds for one batch to reach the disk.
_PATIENCE = 300
#: Host memory beside the objects in flight, and the least room on disk beside all objects: a
#: segment of 16 MiB is open for each length of slot.
_HOST, _DISK = 192 << 20, 1 << 30


class NotStored(Exception):
    """A store did not take what it was given."""


def write(task: dict[str, Any]) -> NoReturn:
    """Runs the prompt, stores its cache under every policy, tells, and kills itself.

    One forward pass serves all policies: each has a store and a recorder of the same cache.
    """
    layout, made = _made(task)
    ids = _ids(task)
    # The stores stay open: the process ends by SIGKILL, and what is there is what `ssd` promised.
    prefixes = []
    for keeping, folder in _stores(task):
        store = _open(task, keeping, folder, layout)
        try:
            prefixes.append(_prefix(store, made, keeping, layout))
        except Unsupported as error:
            json_line({"refused": str(error)})
            raise SystemExit(0) from None
    binding = prefixes[0].binding
    cache = binding.new_cache()
    recorders = [
        prefix.recorder(cache, ids[0].numpy(), length=0, prompt=ids.shape[1]) for prefix in prefixes
    ]
    tokens, step = task["tokens"], chunk_tokens(layout)
    with torch.no_grad():
        for start in range(0, tokens, step):
            chunk = ids[:, start : min(start + step, tokens)]
            binding.forward(chunk, cache, start)
            for recorder in recorders:
                recorder.computed(chunk[0].tolist())
                _wait(recorder.saved.batches)
        for recorder in recorders:
            _wait(recorder.finish().batches)
        logits = binding.forward(ids[:, tokens:], cache, tokens)
    json_line({"words": made.words, "exact": made.exact, "logits": logits[0].float().tolist()})
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL returned")


def restore(task: dict[str, Any]) -> None:
    """Restores the prompt from the store of each policy and goes on; a line of JSON for each."""
    layout, made = _made(task)
    ids = _ids(task)
    for (keeping, folder), wanted in zip(_stores(task), task["usable"], strict=True):
        kept = keeping.kept(layout, task["tokens"])
        told: dict[str, Any] = {"usable": 0, "mode": None, "logits": None}
        # An index for as many objects as there are: it is counted.
        objects = kept.sizes().descriptors // DESCRIPTOR
        with _open(task, keeping, folder, layout, objects) as store:
            prefix = _prefix(store, made, keeping, layout)
            if wanted:
                with prefix.session(
                    ids, prefill=False, follow=False, allow_approximate=kept.approximate()
                ) as session:
                    told |= {"usable": session.length, "mode": session.plan.mode}
                    if session.length == task["tokens"]:
                        told["logits"] = session.compute(TAIL)[0].float().tolist()
            else:  # without a resume point all of it would be computed again
                told["usable"] = prefix.namespace.match(ids[0].numpy()).usable
            told["index"] = store.stats()["host"]["index"]
        json_line(told)


def _made(task: dict[str, Any]) -> tuple[Layout, Made]:
    torch.set_num_threads(1)
    layout = Layout.named(task["name"], task["form"])
    return layout, make(task["name"], layout)


def _ids(task: dict[str, Any]) -> torch.Tensor:
    """The prompt and its tail: random ids, [1, tokens + TAIL]."""
    made = torch.Generator().manual_seed(1)
    return torch.randint(3, 255, (1, task["tokens"] + TAIL), generator=made)


def _stores(task: dict[str, Any]) -> list[tuple[Keeping, Path]]:
    return [(Keeping(**keeping), Path(folder)) for keeping, folder in task["stores"]]


def _open(
    task: dict[str, Any],
    keeping: Keeping,
    folder: Path,
    layout: Layout,
    objects: int | None = None,
) -> kvstore.Store:
    largest = max(layout.body_bytes, layout.window_bytes, layout.checkpoint_bytes)
    room = 2 * keeping.kept(layout, task["tokens"]).sizes().physical + _DISK
    return kvstore.open(
        folder,
        host_bytes=_HOST + 2 * largest,
        disk_bytes=room,
        max_disk_bytes=room,
        objects=objects,
    )


def _prefix(store: kvstore.Store, made: Made, keeping: Keeping, layout: Layout) -> PrefixCache:
    policy = Policy(
        every=keeping.every,
        prompt_end=keeping.end,
        output_end=keeping.end,
        windows=keeping.windows,
    )
    return PrefixCache(
        store,
        made.model,
        weights=fingerprint(made.model),
        form=made.form,
        policy=policy,
        chunk_tokens=chunk_tokens(layout),
        ack="ssd",
    )


def _wait(batches: list[kvstore.Batch]) -> None:
    """Waits for all batches and forgets them: their arrays may go."""
    for batch in batches:
        if not batch.wait(_PATIENCE) or not batch.status.accepted:
            answers = zip(batch.items, batch.status, strict=True)
            (area, at), why = next(pair for pair in answers if not pair[1].accepted)
            raise NotStored(f"{area} {at} was not stored: {why!r}")
    batches.clear()
