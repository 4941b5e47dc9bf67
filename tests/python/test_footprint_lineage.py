"""The record: docs/lineage.md is what the command makes, and its numbers are right."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from kvstore.footprint.lineage import lineage_document
from kvstore.footprint.lineage.corrections import corrections
from kvstore.footprint.lineage.document import lineage_tables

COMMITTED = Path(__file__).parents[2] / "docs" / "lineage.md"


def test_the_committed_document_is_the_commands() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == lineage_document(), (
        "run: kvstore footprint --lineage docs/lineage.md"
    )


def test_every_lost_table_is_there() -> None:
    names = [table.name for table in lineage_tables()]
    assert names == [
        "master",
        "reads",
        "prices",
        "timeline",
        "configurations",
        "configuration",
        "axes",
        "baseline",
        "modes",
        "v3",
        "two_caches",
        "persistent",
        "measured",
        "mechanisms",
        "corrections",
        "facts",
        "outside",
        "glossary",
    ]
    assert all(table.rows for table in lineage_tables())


def test_master_cache_table() -> None:
    (master,) = (t for t in lineage_tables() if t.name == "master")
    assert [(r["model"], r["layers"], r["bytes_per_token"]) for r in master.rows] == [
        ("DeepSeek LLM 7B", 30, 491_520),
        ("DeepSeek LLM 67B", 95, 389_120),
        ("V2", 60, 69_120),
        ("V2, as deployed", 60, 25_920),
        ("V2.5, V2.5-1210", 60, 69_120),
        ("V3", 61, 70_272),
        ("R1, R1-0528", 61, 70_272),
        ("V3.1", 61, 70_272),
        ("V3.1, 656 B records", 61, 40_016),
        ("V3.2-Exp", 61, 48_068),
        ("V3.2, Speciale", 61, 48_068),
        ("V4-Pro", 61, Fraction(50_314_375, 10_000)),
        ("V4-Flash", 43, Fraction(351_425, 100)),
        ("V4.1-Flash", 40, 890),
    ]
    assert [r["elements_per_token_and_layer"] for r in master.rows[:3]] == ["8,192", "2,048", "576"]


def test_read_traffic_table() -> None:
    (reads,) = (t for t in lineage_tables() if t.name == "reads")
    assert [r["bytes"] for r in reads.rows] == [
        3_997_696 * 131_072,
        499_712 * 131_072,
        9_210_691_584,
        5_244_977_152,
        1_137_344_512,
        107_885_568,
        68_246_528,
        35_045_376,
    ]


@pytest.mark.parametrize(
    ("paper", "part"),
    [
        ('7B "480 KB"', "491,520 B = 480 KiB = 491.5 kB"),
        ('7B at 4K "1.9 GB"', "2.013 GB = 1.875 GiB"),
        ('67B at 4K "1.5 GB"', "1.594 GB = 1.484 GiB"),
        ('67B "380", "389", "390", "390,000"', "389,120 B = 380 KiB = 389.1 kB"),
        ('67B int8 "194 KB"', "194.56 kB = 190 KiB"),
        ('"438 x"', "437.2"),
        ('"a quarter of the layers" (7B against 67B)', "31.6%"),
        ('MHA "3.84 MB"', "3,932,160 B = 3,840 KiB = 3.93 MB = 3.75 MiB"),
        ('GQA-8 "240 KB"', "245,760 B = 240 KiB"),
        ('32K of MHA "126 GB"', "128.85 GB = 120.00 GiB"),
        ('32K of GQA-8 "7.9 GB"', "8.05 GB = 7.50 GiB"),
        ('V2 "67.5 KB, the paper rounds to 70"', "67.5 KiB = 69.12 kB"),
        ('V2 "67.5 KB, the paper rounds to 70"', "70.27 kB = 68.6 KiB"),
        ('V2 at 128K "31.5 GB" to "8.9 GB"', "32.21 GB = 30.00 GiB to 9.06 GB = 8.44 GiB"),
        ('V3 at 128K "9.2 GB"', "9.21 GB = 8.58 GiB"),
        ('"389 KB to 67.5 KB, 82.2%"', "82.24%"),
        ('"389 KB to 67.5 KB, 82.2%"', "82.6%"),
        ('"93.3%" left open', "93.34%"),
        ('GQA-8 "500 KB", "65 GB" at V3\'s geometry', "8 heads is 249,856 B and 32.7 GB"),
        ('"57 x more on top of GQA"', "56.9 x"),
        ('"57 x more on top of GQA"', "3.56 x (8 heads) or 7.1 x (16)"),
        ('DSA "4.8 x"', "4.61 x"),
        ('"DSA about 1.1 GB"', "1.137 GB"),
        ('"240 KB x 1M x a commercial batch is petabytes"', "245.8 GB"),
        ('"price cut by more than 50%"', "input 50%, output 75%"),
        ('"half a cent" hit price', "0.6 cent peak, 0.3 cent off-peak"),
        ('"10 x parameter scale-up" V2 to V3', "2.84"),
        ('"ten weeks" V3.2-Exp to V3.2', "63 days, 9 weeks"),
        ('LMCache "10 x smaller end to end"', "9.55 x (Pro), 13.7 x (Flash)"),
    ],
)
def test_where_the_paper_differs(paper: str, part: str) -> None:
    (row,) = (r for r in corrections().rows if r["paper"] == paper)
    assert part in str(row["arithmetic"])


def test_timeline() -> None:
    (timeline,) = (t for t in lineage_tables() if t.name == "timeline")
    assert [row["day"] for row in timeline.rows] == [
        "Nov 2023",
        "Jan 2024",
        "Feb 2024",
        "May 2024",
        "2 Aug 2024",
        "5 Sep 2024",
        "10 Dec 2024",
        "26 Dec 2024",
        "20 Jan 2025",
        "24 Feb 2025",
        "28 May 2025",
        "21 Aug 2025",
        "22 Sep 2025",
        "29 Sep 2025",
        "1 Dec 2025",
        "24 Apr 2026",
        "13 Aug 2026",
        "16 Aug 2026",
        "21 Aug 2026",
        "10 Sep 2026",
        "14 Sep 2026",
    ]
