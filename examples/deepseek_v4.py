"""DeepSeek-V4 (CSA and HCA): pooled entries, windows, and the tails of the pooling.

With checkpoints at prompt and output end a prompt goes on at once. Without them it replays:
layers x 128 tokens computed again over stored entries rebuild windows and tails, exactly.
"""

from common import kept, prompt, small_store, toy_model, two_runs
from kvstore.torch import Policy, PrefixCache

for policy in (Policy(), Policy.never()):
    with small_store() as store:
        model = toy_model("deepseek_v4")
        prefix = PrefixCache(store, model, policy=policy)
        two_runs(model, prefix, prompt(1500))
        kept(store, prefix)
