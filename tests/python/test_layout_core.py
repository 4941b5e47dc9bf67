"""Layouts from Python: by hand, opaque, named, pages, accounting, plans."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvstore.layouts import (
    Group,
    Layout,
    architectures,
    keep,
    records,
    resume_plan,
    usage_tokens,
)

DEMO = [Group("mla", 192, [3, 1, 0, 2], elements=96)]


def test_by_hand_lays_pages_out_by_ascending_layer() -> None:
    layout = Layout.by_hand("demo", 64, DEMO)
    assert (layout.body_bytes, layout.window_bytes, layout.checkpoint_bytes) == (49_152, 0, 0)
    assert layout.page("mla", 3) == ("body", 36_864, 12_288)
    assert layout.page(0, 3) == layout.page("mla", 3)
    assert layout.page("mla", 4) is None
    assert layout.groups[0].layers == [0, 1, 2, 3]
    assert layout.bytes_per_token() == 768
    assert layout.elements_per_token() == 4 * 96


def test_equal_layouts_have_equal_bytes_for_the_id() -> None:
    one, other = (Layout.by_hand("demo", 64, DEMO) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one.canonical() == other.canonical()
    assert Layout.by_hand("demo", 128, DEMO).canonical() != one.canonical()
    assert Layout.opaque("demo", 64, DEMO, form="by hand", split_by_group=True) != one


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Group("g", 4, [0], kind="window"), "needs window"),
        (lambda: Group("g", 4, [0], window=8), "belongs to kind"),
        (lambda: Group("g", 4, [0], kind="ring"), '"entries", "window" or "state"'),
        (lambda: Layout.by_hand("l", 64, [Group("g", 4, [0], ratio=3)]), "ratio = 3"),
        (lambda: Layout.by_hand("l", 64, [Group("g", 0, [0])]), "planes = 0"),
        (lambda: Layout.by_hand("l", 0, DEMO), "block_tokens = 0"),
        (lambda: Layout.by_hand("l", 64, DEMO).page("kv", 0), 'must be one of ["mla"]'),
        (lambda: Layout.named("deepseek-v9"), "no architecture is called"),
        (lambda: Layout.named("deepseek-v3", "mlx:int3"), "vllm:fp8_ds_mla"),
        (lambda: Layout.named("deepseek-v3").persistent_per_token(0), "interval = 0"),
        (lambda: Layout.named("deepseek-v3").rank_bytes(1, (2, 1, 1), (2, 0, 0)), "rank 2"),
        (lambda: Layout.named("deepseek-v3").entry_bytes(1 << 28), "n = 268435456 tokens must be"),
        (lambda: usage_tokens(10, 0, 0, unit=0), "unit = 0"),
        (lambda: keep(Layout.named("deepseek-v3"), 0, 1, 1, windows="some"), "trailing"),
    ],
)
def test_mistakes_say_what_would_be_right(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("[", r"\[").replace("]", r"\]")):
        make()  # type: ignore[operator]


def test_a_state_group_is_a_checkpoint_and_a_window_an_object_of_its_own() -> None:
    groups = [
        Group("kv", 64, [0]),
        Group("local", [32, 8], [1], kind="window", window=32),
        Group("state", 1000, [2], kind="state"),
    ]
    layout = Layout.opaque("engine", 16, groups, form="vllm", split_by_group=True)
    assert (layout.body_bytes, layout.window_bytes, layout.checkpoint_bytes) == (1024, 640, 1000)
    assert (layout.max_window, layout.split_by_group) == (32, True)
    assert layout.exact_replay_tokens() is None
    assert layout.groups[1].planes == [32, 8]


def test_named_layouts_of_the_registry() -> None:
    assert Layout.named("deepseek-ai/DeepSeek-V4.1-Flash").bytes_per_token() == 890
    flash = Layout.named("deepseek-v4-flash")
    assert flash.bytes_per_token() == Fraction(14_057, 4)
    assert Layout.named("deepseek-v4-flash", "vllm:fp8_ds_mla").bytes_per_token(
        padded=True
    ) == Fraction(358_425, 100)
    assert "43" not in flash.describe().splitlines()[0]
    drafted = Layout.named("deepseek-v3.2", draft=True)
    assert drafted.bytes_per_token() - Layout.named("deepseek-v3.2").bytes_per_token() == 788
    assert [g.name for g in drafted.groups if g.draft] == ["mtp-mla", "mtp-index"]


def test_every_architecture_has_a_source_and_forms() -> None:
    known = architectures()
    assert len(known) >= 50
    for architecture in known:
        assert architecture.source
        for form, source in architecture.forms:
            assert source
            assert architecture.layout(form, draft=True).form == form
    assert all(sum(planes) > 0 and source for _, planes, source in records())


OWN = """
[[arch]]
name = "mine"
layers = 4
block_tokens = 128
source = "me"
forms = ["dense"]

[[arch.group]]
name = "kv"
layers = "0-3"
heads = 2
dim = 64
"""


def test_an_architecture_in_toml_has_the_forms_of_its_set() -> None:
    assert Layout.named("mine", "vllm:fp8", toml=OWN).bytes_per_token() == 4 * 2 * 64 * 2
    with pytest.raises(ValueError, match=r"own\.toml:11: .*does not exist.*Mend: raise layers"):
        Layout.named("mine", toml=OWN.replace("0-3", "0-4"), origin="own.toml")


def test_plans_by_block() -> None:
    flash = Layout.named("deepseek-v4-flash")
    plan = resume_plan(flash, 12_805, 100, windows={63, 99}, checkpoints={4096, 8192})
    assert (plan.mode, plan.usable, plan.checkpoint) == ("checkpoint", 8192, 8192)
    assert (plan.bodies, plan.windows) == ((0, 64), (63, 64))
    assert plan.cost is None
    bounded = resume_plan(
        Layout.named("deepseek-v4.1-flash"), 12_806, 100, costs=(1.0, 0.0), allow_approximate=True
    )
    assert (bounded.mode, bounded.replay_start, bounded.extra_ids) == ("bounded_replay", 12_672, 3)
    assert bounded.cost == bounded.recompute_tokens == 134


def test_policies() -> None:
    flash = Layout.named("deepseek-v4-flash")
    assert keep(flash, 0, 10_000, 9_000) == ([8960, 9984], [8960, 9984], [69, 77])
    never = keep(flash, 0, 10_000, 9_000, prompt_end=False, output_end=False, windows="none")
    assert never == ([], [], [])


@given(
    prompt=st.integers(0, 1 << 20),
    matched=st.integers(0, 1 << 20),
    usable=st.integers(0, 1 << 20),
    unit=st.sampled_from([64, 128]),
)
def test_usage_is_whole_units_that_leave_a_token(
    prompt: int, matched: int, usable: int, unit: int
) -> None:
    total, hit, miss, first = usage_tokens(prompt, matched, usable, unit=unit)
    assert (total, hit + miss) == (prompt, prompt)
    assert hit == unit * (min(max(prompt - 1, 0), usable) // unit)
    assert (first is None) == (matched >= prompt)


@given(n=st.integers(0, 1 << 21), name=st.sampled_from([a.name for a in architectures()]))
def test_kinds_sum_to_groups(n: int, name: str) -> None:
    layout = Layout.named(name)
    kinds = layout.entry_bytes(n) + layout.window_bytes_at(n) + layout.state_bytes(n)
    assert kinds == sum(layout.group_bytes(n))
    assert layout.read_bytes(n) == sum(layout.group_read_bytes(n))
    assert sum(layout.layer_bytes(i, n) for i in range(layout.model_layers)) == kinds
