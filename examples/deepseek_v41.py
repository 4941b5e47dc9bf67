"""DeepSeek-V4.1-Flash (CSA2): 890 bytes per token at true geometry, and a bounded replay.

transformers has no such model; this is the reference model of kvstore.models with fewer layers. Its
cache holds packed records: 288 bytes per entry, 68 per index key, 528 per window row. Windows are
not stored. A resumed prompt computes its last 128 tokens again over the stored entries, which is
close to the live cache but not equal, so it must be allowed.
"""

from common import kept, prompt, small_store
from kvstore.layouts import Layout
from kvstore.models import deepseek
from kvstore.torch import PrefixCache

ids = prompt(1000)
with small_store() as store:
    model = deepseek.build("deepseek-v4.1-flash", toy=True)
    prefix = PrefixCache(store, model)
    _, live = prefix.prefill(ids)
    for approximate in (False, True):
        cache, usable = prefix.restore(ids, allow_approximate=approximate)
        plan = prefix.namespace.match(ids[0].numpy(), allow_approximate=approximate)
        print(
            f"allow_approximate={approximate}: {plan.mode}, {usable} tokens restored, "
            f"{plan.recompute_tokens} computed"
        )
    restored = model(ids[:, usable:], cache)[:, -1]
    print(
        f"logits differ by at most {(restored - live).abs().max():.3f}, of a spread of "
        f"{live.std():.3f}"
    )
    kept(store, prefix)
    print(f"at true geometry: {Layout.named('deepseek-v4.1-flash').bytes_per_token()} B per token")
