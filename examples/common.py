"""What the examples share: a small model of a family, a store that vanishes, a prompt, a clock."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import time
import warnings
from collections.abc import Iterator

import kvstore
import torch
from kvstore.models import families

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)  # which fast kernels are not installed
torch.set_num_threads(1)  # small models; and the same bits in every run

QUIET = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}


@contextlib.contextmanager
def small_store() -> Iterator[kvstore.Store]:
    """A store in a temporary directory. Yours stays: kvstore.open("/nvme/kv", ...)."""
    with tempfile.TemporaryDirectory() as directory:
        options = {"host_bytes": "128 MiB", "disk_bytes": "512 MiB", "objects": 20_000}
        with kvstore.open(directory, **options) as store, torch.no_grad():
            yield store


def toy_model(family: str, dtype: str = "bfloat16"):
    """A family's model with small random weights: yours comes from from_pretrained."""
    return families.toy_model(family, dtype)


def prompt(tokens: int, seed: int = 0) -> torch.Tensor:
    """Token ids [1, tokens]."""
    return torch.randint(3, 255, (1, tokens), generator=torch.Generator().manual_seed(seed))


def two_runs(model, prefix, input_ids: torch.Tensor) -> None:
    """Generates twice from one prompt: the second run restores what the first has stored."""
    outputs = []
    for run in ("first", "second"):
        begin = time.perf_counter()
        with prefix.session(input_ids) as session:
            ready = time.perf_counter() - begin
            outputs.append(model.generate(input_ids, max_new_tokens=16, **QUIET, **session.kwargs))
        print(
            f"{run} run: {session.plan.usable:>4} of {input_ids.shape[1]} tokens from the store "
            f"({session.plan.mode}), ready to generate after {ready * 1e3:.0f} ms"
        )
    assert torch.equal(*outputs)
    print("both generate the same tokens")


def kept(store: kvstore.Store, prefix) -> None:
    """What the layout keeps, and what the store holds."""
    print(prefix.layout.describe())
    objects = store.stats()["objects"]
    print(f"objects in the store: {objects}")
