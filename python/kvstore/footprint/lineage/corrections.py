"""Where the paper's numbers differ from the arithmetic, each with the right one, computed."""

from __future__ import annotations

from datetime import date
from fractions import Fraction

from kvstore.footprint.lineage.rebuilt import layout, per_token
from kvstore.footprint.prices import prices
from kvstore.footprint.table import Table

_32K, _128K = 32_768, 131_072


def _both(value: float, *, digits: int = 2) -> str:
    return f"{value / 1e9:.{digits}f} GB = {value / 2**30:.{digits}f} GiB"


def _cut(old: Fraction | None, new: Fraction | None) -> str:
    return f"{1 - float(new) / float(old):.0%}" if old and new else "not given"


def _cents(price: Fraction | None) -> str:
    return f"{float(price) * 100:g}" if price is not None else "not given"


def corrections() -> Table:
    """Units and sums."""
    table = Table("corrections", "Units and sums", ["paper", "arithmetic"])
    for paper, right in _pairs():
        table.add(paper=paper, arithmetic=right)
    return table


def _pairs() -> list[tuple[str, str]]:
    llm7, llm67 = int(per_token("deepseek-llm-7b")), int(per_token("deepseek-llm-67b"))
    mha2, gqa2, v2 = (int(per_token(n)) for n in ("v2-as-mha", "v2-as-gqa-8", "deepseek-v2"))
    mha3, v3 = int(per_token("v3-as-mha")), int(per_token("deepseek-v3"))
    gqa16, gqa8 = int(per_token("v3-as-gqa-16")), int(per_token("v3-as-gqa-8"))
    int8, six = int(per_token("67b-as-gqa-int8")), int(per_token("deepseek-v2", "deployed:6bit"))
    v41 = int(per_token("deepseek-v4.1-flash"))
    dsa = layout("deepseek-v3.2").read_bytes(_128K)
    dense = layout("deepseek-v3", "vllm:fp8_ds_mla").read_bytes(_128K)
    v32, pro, flash = (
        per_token(n) for n in ("deepseek-v3.2", "deepseek-v4-pro", "deepseek-v4-flash")
    )
    chunk = layout("deepseek-v4-flash", "lmcache:fp8_ds_mla").persistent_per_token(256)
    table = prices()
    old, new = table["deepseek-v3.1"], table["deepseek-v3.2-exp"]
    last = table["deepseek-v4.1-flash"]
    days = (date(2025, 12, 1) - date(2025, 9, 29)).days
    return [
        ('7B "480 KB"', f"{llm7:,} B = {llm7 // 1024} KiB = {llm7 / 1e3:.1f} kB"),
        ('7B at 4K "1.9 GB"', f"{llm7 * 4096 / 1e9:.3f} GB = {llm7 * 4096 / 2**30:.3f} GiB"),
        ('67B at 4K "1.5 GB"', f"{llm67 * 4096 / 1e9:.3f} GB = {llm67 * 4096 / 2**30:.3f} GiB"),
        (
            '67B "380", "389", "390", "390,000"',
            f"one number, {llm67:,} B = {llm67 // 1024} KiB = {llm67 / 1e3:.1f} kB",
        ),
        (
            '67B int8 "194 KB"',
            f"{int8 / 1e3:.2f} kB = {int8 // 1024} KiB: decimal, beside a binary 380",
        ),
        (
            '"438 x"',
            f"{llm67:,}/{v41} = {llm67 / v41:.1f}; 438 comes from 390,000; the report says 437",
        ),
        ('"a quarter of the layers" (7B against 67B)', f"30/95 = {30 / 95:.1%}"),
        (
            'MHA "3.84 MB"',
            f"{mha2:,} B = {mha2 // 1024:,} KiB = {mha2 / 1e6:.2f} MB = {mha2 / 2**20:.2f} MiB",
        ),
        ('GQA-8 "240 KB"', f"{gqa2:,} B = {gqa2 // 1024} KiB"),
        (
            '32K of MHA "126 GB"',
            f"{_both(mha2 * _32K)}; the paper multiplied 3.84e6 by {_32K:,}",
        ),
        ('32K of GQA-8 "7.9 GB"', _both(gqa2 * _32K)),
        (
            'V2 "67.5 KB, the paper rounds to 70"',
            f"{v2 / 1024:.1f} KiB = {v2 / 1e3:.2f} kB, which rounds to 70 as kB; V3's is "
            f"{v3 / 1e3:.2f} kB = {v3 / 1024:.1f} KiB",
        ),
        (
            'V2 at 128K "31.5 GB" to "8.9 GB"',
            f"{_both(gqa2 * _128K)} to {_both(v2 * _128K)}; binary kilobytes were taken as decimal",
        ),
        ('V3 at 128K "9.2 GB"', f"{_both(v3 * _128K)}: right, and decimal, unlike V2's 8.9"),
        (
            '"389 KB to 67.5 KB, 82.2%"',
            f"{1 - v2 / llm67:.2%} with both in decimal ({llm67 / 1e3:.2f}, {v2 / 1e3:.2f}); the "
            f"pair as written mixes units and would give {1 - 67.5 / 389:.1%}",
        ),
        (
            '"93.3%" left open',
            f"closes at 6 bits per element: 1 - {six:,}/{llm67:,} = {1 - six / llm67:.2%}",
        ),
        (
            'GQA-8 "500 KB", "65 GB" at V3\'s geometry',
            f"that is 16 heads ({gqa16:,} B, {gqa16 * _128K / 1e9:.1f} GB); 8 heads is {gqa8:,} B "
            f"and {gqa8 * _128K / 1e9:.1f} GB",
        ),
        (
            '"57 x more on top of GQA"',
            f"{mha3 / v3:.1f} x is against MHA; against GQA it is {gqa8 / v3:.2f} x (8 heads) or "
            f"{gqa16 / v3:.1f} x (16)",
        ),
        ('DSA "4.8 x"', f'{dense:,}/{dsa:,} = {dense / dsa:.2f} x; elsewhere "roughly 5 x"'),
        ('"DSA about 1.1 GB"', f"{dsa / 1e9:.3f} GB (correct to its digits)"),
        (
            '"240 KB x 1M x a commercial batch is petabytes"',
            f"{gqa2 * 10**6 / 1e9:.1f} GB (at 10^6) a request; a petabyte needs about "
            f"{10**15 / (gqa2 * 10**6):,.0f} concurrent requests",
        ),
        (
            '"price cut by more than 50%"',
            f"input {_cut(old.miss, new.miss)}, output {_cut(old.output, new.output)}",
        ),
        (
            '"half a cent" hit price',
            f"{_cents(last.hit)} cent peak, {_cents(last.hit_off_peak)} cent off-peak",
        ),
        ('"10 x parameter scale-up" V2 to V3', f"671/236 = {671 / 236:.2f}"),
        ('"ten weeks" V3.2-Exp to V3.2', f"{days} days, {days // 7} weeks"),
        ('"one year of sparsity" at Dec 2025', f"the same {days // 7} weeks"),
        (
            'LMCache "10 x smaller end to end"',
            f"entries only: {float(v32 / pro):.2f} x (Pro), {float(v32 / flash):.1f} x (Flash); "
            f"stored in 256-token chunks V4-Flash takes {float(chunk):,.0f} B, more than V3.2's "
            f"{int(v32):,}",
        ),
        (
            'the hit price "fell from $0.014 to $0.006"',
            "it doubled to 0.028 in 2025 before it fell to 0.006",
        ),
    ]
