"""A conversation: every turn goes on from the last one's output, and a restart loses nothing."""

import tempfile

import kvstore
import torch
from common import QUIET, prompt, toy_model
from kvstore.torch import PrefixCache

model = toy_model("qwen3")
ids = prompt(300)
with tempfile.TemporaryDirectory() as directory, torch.no_grad():
    for turn in range(6):
        # Opened anew for each turn, as a server that restarts would.
        with kvstore.open(directory, host_bytes="128 MiB", disk_bytes="512 MiB") as store:
            prefix = PrefixCache(store, model, cache_salt="user-17", ack="ssd")
            with prefix.session(ids) as session:
                out = model.generate(ids, max_new_tokens=40, **QUIET, **session.kwargs)
            usage = session.plan.usage()
            print(
                f"turn {turn}: prompt_cache_hit_tokens {usage.hit_tokens:>4}, "
                f"prompt_cache_miss_tokens {usage.miss_tokens:>4}"
            )
        ids = torch.cat([out, prompt(50, seed=turn)], dim=1)
