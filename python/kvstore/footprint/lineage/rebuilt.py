"""The lost tables, computed."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import cache

from kvstore._core import Architecture, Layout, architectures
from kvstore.footprint.prices import prices
from kvstore.footprint.table import Table

KIB = 1024


@cache
def _known() -> dict[str, Architecture]:
    return {a.name: a for a in architectures()}


def layout(name: str, form: str | None = None) -> Layout:
    """A layout of the registry."""
    return _known()[name].layout(form)


def per_token(name: str, form: str | None = None) -> Fraction:
    """Logical bytes per token."""
    value: Fraction = layout(name, form).bytes_per_token()
    return value


def configurations() -> Table:
    """Chapter 2: one geometry (V2's 60 layers, 128 heads of 128) under three mechanisms."""
    table = Table(
        "configurations",
        "Three configurations at V2's geometry (chapter 2)",
        ["mechanism", "elements_per_token_and_layer", "bytes_per_token", "kib", "mha_over_this"],
        notes=["Basis: bf16, logical, 60 layers."],
    )
    mha = per_token("v2-as-mha")
    for title, name in (("MHA", "v2-as-mha"), ("GQA-8", "v2-as-gqa-8"), ("MLA", "deepseek-v2")):
        one = layout(name)
        size = one.bytes_per_token()
        table.add(
            mechanism=title,
            elements_per_token_and_layer=one.elements_per_token() / 60,
            bytes_per_token=size,
            kib=size / KIB,
            mha_over_this=mha / size,
        )
    return table


def baseline() -> Table:
    """Chapter 3: the two models of 2023."""
    table = Table(
        "baseline",
        "The 2023 baseline (chapter 3)",
        [
            "model",
            "layers",
            "kv_heads",
            "bytes_per_token",
            "kib",
            "at_4096_tokens_gb",
            "at_4096_tokens_gib",
        ],
        notes=["Basis: bf16, logical. GB is 10^9 bytes, GiB 2^30."],
    )
    for name in ("deepseek-llm-7b", "deepseek-llm-67b"):
        one = layout(name)
        held = one.entry_bytes(4096)
        table.add(
            model=_known()[name].title,
            layers=one.model_layers,
            kv_heads=one.groups[0].heads,
            bytes_per_token=one.bytes_per_token(),
            kib=one.bytes_per_token() / KIB,
            at_4096_tokens_gb=held / 1e9,
            at_4096_tokens_gib=held / 2**30,
        )
    return table


def v3_arithmetic() -> Table:
    """Chapter 7: V3's geometry under every mechanism, at 128K tokens."""
    table = Table(
        "v3",
        "V3's geometry: 61 layers, 128 heads of 128 (chapters 2 and 7)",
        ["mechanism", "bytes_per_token", "this_over_mla", "gb_at_131072_tokens", "basis"],
    )
    mla = per_token("deepseek-v3")
    rows = [
        ("MHA", "v3-as-mha", None, "counterfactual, bf16"),
        ("GQA, 16 heads", "v3-as-gqa-16", None, 'counterfactual, bf16; the paper\'s "GQA-8"'),
        ("GQA, 8 heads", "v3-as-gqa-8", None, "counterfactual, bf16"),
        ("MQA", "v3-as-mqa", None, "counterfactual, bf16"),
        ("MLA", "deepseek-v3", None, "bf16"),
        ("MLA, 656 B records", "deepseek-v3", "vllm:fp8_ds_mla", "fp8"),
        ("MLA, plain fp8", "deepseek-v3", "vllm:fp8", "fp8"),
    ]
    for title, name, form, basis in rows:
        one = layout(name, form)
        table.add(
            mechanism=title,
            bytes_per_token=one.bytes_per_token(),
            this_over_mla=one.bytes_per_token() / mla,
            gb_at_131072_tokens=one.entry_bytes(131_072) / 1e9,
            basis=basis,
        )
    return table


def attention_configuration() -> Table:
    """Chapter 5.5: the configuration, as far as a cache depends on it."""
    table = Table(
        "configuration",
        "Configurations (chapters 5 and 12)",
        ["model", "layers", "groups", "confidence", "source"],
    )
    for name in CHAIN:
        architecture = _known()[name]
        parts = [
            f"{g.name} ({'window of ' + str(g.window) if g.window else g.kind}): "
            f"{len(g.layers)} x {g.elements}" + (f" per {g.ratio}" if g.ratio > 1 else "")
            for g in architecture.layout().groups
            if g.kind != "state"
        ]
        table.add(
            model=architecture.title,
            layers=architecture.layers,
            groups="; ".join(parts),
            confidence=architecture.confidence,
            source=architecture.source,
        )
    return table


CHAIN = (
    "deepseek-llm-7b",
    "deepseek-llm-67b",
    "deepseek-v2",
    "deepseek-v3",
    "deepseek-v3.2",
    "deepseek-v4-pro",
    "deepseek-v4-flash",
    "deepseek-v4.1-flash",
)

#: Rows of 7.1: model, date, architecture, form, basis.
_MASTER = (
    ("DeepSeek LLM 7B", "Nov 2023", "deepseek-llm-7b", None, "bf16 logical"),
    ("DeepSeek LLM 67B", "Nov 2023", "deepseek-llm-67b", None, "bf16 logical"),
    ("V2", "May 2024", "deepseek-v2", None, "bf16 logical"),
    ("V2, as deployed", "May 2024", "deepseek-v2", "deployed:6bit", "6 bits an element"),
    ("V2.5, V2.5-1210", "5 Sep, 10 Dec 2024", "deepseek-v2", None, "bf16 logical"),
    ("V3", "26 Dec 2024", "deepseek-v3", None, "bf16 logical"),
    ("R1, R1-0528", "20 Jan, 28 May 2025", "deepseek-v3", None, "bf16 logical"),
    ("V3.1", "21 Aug 2025", "deepseek-v3", None, "bf16 logical"),
    ("V3.1, 656 B records", "21 Aug 2025", "deepseek-v3", "vllm:fp8_ds_mla", "fp8"),
    ("V3.2-Exp", "29 Sep 2025", "deepseek-v3.2", None, "fp8, 656 + 132"),
    ("V3.2, Speciale", "1 Dec 2025", "deepseek-v3.2", None, "fp8, 656 + 132"),
    ("V4-Pro", "24 Apr 2026", "deepseek-v4-pro", None, "native, 584 + 68; claim: 10% of V3.2"),
    ("V4-Flash", "24 Apr 2026", "deepseek-v4-flash", None, "native, 584 + 68; claim: 7% of V3.2"),
    (
        "V4.1-Flash",
        "10 Sep 2026",
        "deepseek-v4.1-flash",
        None,
        "native, 288 + 68, global only; claim: 890",
    ),
)


def master() -> Table:
    """Chapter 15.1."""
    table = Table(
        "master",
        "The master cache table (15.1)",
        [
            "model",
            "date",
            "mechanism",
            "elements_per_token_and_layer",
            "layers",
            "owners",
            "bytes_per_token",
            "basis",
        ],
        notes=[
            'Elements of each kind of owner layer. Sizes are logical; "claim": a vendor\'s number.'
        ],
    )
    for title, day, name, form, basis in _MASTER:
        one = layout(name, form)
        table.add(
            model=title,
            date=day,
            mechanism=_known()[name].mechanism,
            elements_per_token_and_layer=elements_by_layer(one),
            layers=one.model_layers,
            owners=one.owner_layers,
            bytes_per_token=one.bytes_per_token(),
            basis=basis,
        )
    return table


def elements_by_layer(one: Layout) -> str:
    """Elements per token of each kind of owner layer: "512/4 + 128/4 on 30, 512/128 on 31"."""
    of_layer: dict[int, list[str]] = {}
    for group in one.groups:
        if group.kind == "entries":
            part = f"{group.elements:,}" + (f"/{group.ratio}" if group.ratio > 1 else "")
            for layer in group.layers:
                of_layer.setdefault(layer, []).append(part)
    kinds = Counter(" + ".join(parts) for parts in of_layer.values())
    if len(kinds) == 1:
        return next(iter(kinds))
    return ", ".join(f"{parts} on {count}" for parts, count in kinds.most_common())


def reads(n: int = 131_072) -> Table:
    """Chapter 15.2."""
    table = Table(
        "reads",
        f"Read traffic per decode step at {n:,} tokens (15.2)",
        ["design", "bytes", "gb", "note"],
        notes=[
            "Basis: cache bytes touched by one request's step; a main entry once per reading layer."
        ],
    )
    rows = [
        ("MHA at V3's geometry", "v3-as-mha", None, "counterfactual"),
        ("GQA at 16 heads", "v3-as-gqa-16", None, 'counterfactual; the paper\'s "500 KB"'),
        ("dense MLA, bf16", "deepseek-v3", None, ""),
        ("dense MLA, 656", "deepseek-v3", "vllm:fp8_ds_mla", "the paper's 5.24 GB"),
        ("DSA", "deepseek-v3.2", None, 'the paper\'s "about 1.1"; 4.61 x less than dense 656'),
        ("V4-Pro", "deepseek-v4-pro", None, "ours"),
        ("V4-Flash", "deepseek-v4-flash", None, "ours"),
        ("V4.1-Flash", "deepseek-v4.1-flash", None, "ours; entries counted once per reading layer"),
    ]
    for title, name, form, note in rows:
        read = layout(name, form).read_bytes(n)
        table.add(design=title, bytes=read, gb=read / 1e9, note=note)
    return table


def price_record() -> Table:
    """Chapter 15.3."""
    table = Table(
        "prices",
        "The price record (15.3)",
        ["from", "model", "hit", "hit_off_peak", "miss", "output", "hit_discount", "source"],
        notes=["USD per million tokens as the paper states them; empty: not given."],
    )
    for price in prices().values():
        table.rows.append(
            {
                "from": price.since,
                "model": price.model,
                "hit": price.hit,
                "hit_off_peak": price.hit_off_peak,
                "miss": price.miss,
                "output": price.output,
                "hit_discount": price.discount(),
                "source": price.source,
            }
        )
    return table


def two_caches() -> Table:
    """Chapter 10.2: V3.2's two caches byte by byte, and V4.1's."""
    table = Table(
        "two_caches",
        "The two caches, byte by byte (10.2)",
        ["model", "cache", "bytes", "content", "page"],
        notes=[
            "A page of index keys holds all values, then all scales: it cannot be cut at a key.",
            "Scale rules differ by writer: vLLM keeps max/448 as it is, FlashMLA rounds up to a "
            "power of two.",
        ],
    )
    v32 = layout("deepseek-v3.2")
    main, index = v32.groups[0], v32.groups[1]
    rows = [
        ("V3.2", "latent [0, 512)", 512, "512 e4m3", ""),
        ("V3.2", "scales [512, 528)", 16, "4 float32, one per 128", ""),
        ("V3.2", "rotary key [528, 656)", 128, "64 bf16", ""),
        ("V3.2", "entry", main.record_bytes, "", f"64 tokens: {64 * main.record_bytes:,}"),
        ("V3.2", "index key", index.planes[0], "128 e4m3", ""),
        ("V3.2", "index scale", index.planes[1], "1 float32", ""),
        ("V3.2", "index entry", index.record_bytes, "", f"64 tokens: {64 * index.record_bytes:,}"),
    ]
    v41 = {g.name: g for g in layout("deepseek-v4.1-flash").groups}
    rows += [
        ("V4.1", "values [0, 256)", 256, "512 e2m1, even element low", ""),
        ("V4.1", "scales [256, 288)", 32, "32 e4m3, one per 16", ""),
        ("V4.1", "entry", v41["r1"].record_bytes, "", ""),
        ("V4.1", "index entry", v41["r1-index"].record_bytes, "128 e2m1; 4 UE8M0, one per 32", ""),
        ("V4.1", "window row", v41["window"].record_bytes, "512 e4m3; 16 UE8M0, one per 32", ""),
    ]
    for model, name, size, content, page in rows:
        table.add(model=model, cache=name, bytes=size, content=content, page=page)
    return table


def mechanisms() -> Table:
    """Chapter 16.1: the mechanisms side by side."""
    table = Table(
        "mechanisms",
        "The mechanisms compared (16.1)",
        [
            "mechanism",
            "model",
            "bytes_per_token",
            "reads_gb_at_131072",
            "fixed_bytes_per_request",
            "exact_replay_tokens",
        ],
        notes=[
            "Basis: each model's default form. Fixed: window rows and states that a request holds "
            "whatever its length. Exact replay: tokens over stored entries; empty: a recurrent "
            "state that no replay brings back; 0: nothing to replay.",
        ],
    )
    for name in MECHANISMS:
        one, architecture = layout(name), _known()[name]
        table.add(
            mechanism=architecture.mechanism,
            model=architecture.title,
            bytes_per_token=one.bytes_per_token(),
            reads_gb_at_131072=one.read_bytes(131_072) / 1e9,
            fixed_bytes_per_request=one.window_bytes_at(1 << 20, held=True) + one.ring_bytes(),
            exact_replay_tokens=one.exact_replay_tokens(),
        )
    return table


MECHANISMS = (
    "deepseek-llm-7b",
    "llama-3-70b",
    "v3-as-mqa",
    "gemma-3-27b",
    "gpt-oss-120b",
    "nsa-27b",
    "minimax-m3",
    "deepseek-v3",
    "deepseek-v3.2",
    "glm-5.2",
    "qwen3-next-80b-a3b",
    "kimi-k3",
    "deepseek-v4-pro",
    "deepseek-v4-flash",
    "deepseek-v4.1-flash",
)
