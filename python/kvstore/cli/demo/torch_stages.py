"""The two processes of the demo through transformers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers

import kvstore
from kvstore.cli.demo.shop import GENERATED, Clock, long_prompt, open_store, other_prompts
from kvstore.cli.output import json_line
from kvstore.models import demo
from kvstore.models.safetensors import read
from kvstore.torch import PrefixCache

__all__ = ["restore", "write"]


def load() -> Any:
    """The built-in model as transformers' DeepSeek-V3, in bfloat16 as it was saved."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    fields = json.loads(demo.config_file().read_text(encoding="utf-8"))
    model: Any = transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(**fields))
    tensors = {name: torch.from_numpy(t) for name, t in read(demo.weights_file()).tensors.items()}
    model.load_state_dict(tensors, strict=False)  # the output matrix is the embedding
    model.tie_weights()
    return model.bfloat16().eval()


def write(directory: Path, tokens: int, tenant: str) -> None:
    """Computes and stores the long prompt, generates, and stores on until it is killed. Each step
    is a line of JSON on standard output."""
    with _started(directory, tenant) as (clock, model, store, prefix):
        json_line({"step": "ready", "seconds": clock.seconds})
        ids = _ids(long_prompt(tokens))
        out, session = _generate(clock, model, prefix, ids)
        whole = session.saved.wait(60) and not session.saved.count("rejected")
        json_line({"step": "generated", "seconds": clock.seconds, "tokens": out, "whole": whole})
        for number in range(sys.maxsize):
            for prompt in other_prompts():
                other = PrefixCache(store, model, cache_salt=f"{tenant}/{number}", ack="ssd")
                json_line({"step": "begun"})
                other.prefill(_ids(prompt))


def restore(directory: Path, tokens: int, tenant: str) -> None:
    """Restores the long prompt, generates, and counts what the store keeps of it."""
    with _started(directory, tenant) as (clock, model, store, prefix):
        ids = _ids(long_prompt(tokens))
        plan = prefix.namespace.match(ids[0].numpy())
        out, session = _generate(clock, model, prefix, ids)
        strides = store.stats()["disk"]["classes"]
        slot = min(int(s) for s in strides if int(s) >= prefix.layout.body_bytes)
        json_line(
            {
                "seconds": clock.seconds,
                "tokens": out,
                "hits": {"disk": plan.disk_blocks, "host": plan.host_blocks},
                "usable": session.plan.usable,
                "block_tokens": prefix.layout.block_tokens,
                "body_bytes": prefix.layout.body_bytes,
                "slot_bytes": slot,
            }
        )


@contextmanager
def _started(
    directory: Path, tenant: str
) -> Iterator[tuple[Clock, Any, kvstore.Store, PrefixCache]]:
    clock = Clock()
    with clock.time("model"):
        model = load()
    with clock.time("open"):
        store = open_store(directory)
    with store, torch.no_grad():
        yield clock, model, store, PrefixCache(store, model, cache_salt=tenant, ack="ssd")


def _generate(clock: Clock, model: Any, prefix: PrefixCache, ids: torch.Tensor) -> Any:
    """The tokens behind a prompt, and the session in which they were generated."""
    session = prefix.session(ids)
    with clock.time("prefill"):
        session.__enter__()
    with clock.time("generate"):
        out = model.generate(
            ids, max_new_tokens=GENERATED, do_sample=False, eos_token_id=None, **session.kwargs
        )
    with clock.time("store"):
        session.__exit__(None, None, None)
    return out[0, ids.shape[1] :].tolist(), session


def _ids(prompt: bytes) -> torch.Tensor:
    return torch.tensor([list(prompt)])
