"""The layout of what a model keeps, in the precision asked for, at true or toy geometry.

True geometry is the registry's own (`Layout.named`). A toy has the same groups with the same rows,
ratios and windows, in fewer layers. Row widths are never cut: the packed records are made for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvstore.layouts import Group, Layout

__all__ = ["FORMS", "TOYS", "forms_of", "layout_of"]

FORMS = ("native", "bf16", "fp32")
"""Precisions of stored rows: packed records as engines keep them, or plain numbers.

Compressor tails (state groups) are float32 in each.
"""

#: The registry's form of each precision, by a group that tells the family.
_REGISTRY = {
    "kv": {"bf16": "transformers"},
    "mla": {"native": "flashmla:fp8_ds_mla", "bf16": "transformers"},
    "csa": {"native": "native"},
    "r1": {"native": "native", "bf16": "bf16"},
}

#: Owner layers of each group in the toy, and its layers in all.
TOYS: dict[str, tuple[int, dict[str, Sequence[int]]]] = {
    "deepseek-llm-7b": (2, {"kv": range(2)}),
    "deepseek-llm-67b": (3, {"kv": range(3)}),
    "deepseek-v2": (3, {"mla": range(3)}),
    "deepseek-v3": (3, {"mla": range(3), "mtp-mla": [3]}),
    "deepseek-v3.2": (3, {"mla": range(3), "index": range(3)}),
    "deepseek-v4-pro": (
        5,
        {"csa": [2, 4], "hca": [0, 1, 3], "window": range(5)},
    ),
    "deepseek-v4-flash": (6, {"csa": [2, 4], "hca": [3, 5], "window": range(6)}),
    "deepseek-v4.1-flash": (
        12,
        {"r1": [6], "r2": [2, 4], "window": range(12)},
    ),
}

#: What a compressor holds between tokens (layouts.md, section 3): `rows` kept from `from` tokens
#: on, and the rows of the open group of `every` tokens, in multiples of the group's row.
_TAILS = {
    "csa-tail": (4, 4, 4, 2),
    "csa-index-tail": (4, 4, 4, 2),
    "hca-tail": (0, 1, 128, 1),
    "r2-tail": (0, 1, 2, 1),
}


def _family(layout: Layout) -> str:
    names = [group.name for group in layout.groups]
    return next(name for name in _REGISTRY if name in names)


def forms_of(name: str) -> list[str]:
    """The precisions that an architecture can be built in."""
    known = _REGISTRY[_family(Layout.named(name))]
    return [form for form in FORMS if form != "native" or form in known]


def layout_of(name: str, form: str, *, toy: bool = False, draft: bool = False) -> Layout:
    """The layout of an architecture with rows in `form`; draft=True adds the draft layers'."""
    forms = _REGISTRY[_family(Layout.named(name))]
    if form not in forms_of(name):
        raise ValueError(f"form: {form!r} given for {name}, one of {forms_of(name)} wanted")
    registered = forms.get(form)
    if registered is not None and not toy:
        return Layout.named(name, registered, draft=draft)
    base = Layout.named(name, forms.get("native", "transformers"), draft=draft)
    layers, owners = TOYS[name] if toy else (base.model_layers, {})
    title = f"{name}-toy" if toy else name
    text = _toml(title, base, layers, owners, form)
    return Layout.named(title, form, draft=draft, toml=text, origin="kvstore.models.deepseek")


def _toml(
    title: str,
    base: Layout,
    layers: int,
    owners: Mapping[str, Sequence[int]],
    form: str,
) -> str:
    """The groups of `base` as an architecture of its own: other owner layers, another form."""
    lines = [
        "[[arch]]",
        f'name = "{title}"',
        f"layers = {layers}",
        f"draft_layers = {1 if any(group.draft for group in base.groups) else 0}",
        f"block_tokens = {base.block_tokens}",
        'source = "kvstore.models.deepseek"',
    ]
    if base.bounded_replay_tokens is not None:
        lines.append(f"replay = {{ bounded = {base.bounded_replay_tokens} }}")
    records = {
        group.name: group.format if form == "native" else form
        for group in base.groups
        if group.kind != "state"
    }
    records |= {group.name: "fp32" for group in base.groups if group.kind == "state"}
    written = ", ".join(f'{name} = "{record}"' for name, record in records.items())
    lines += ["[[arch.form]]", f'name = "{form}"', f"records = {{ {written} }}"]
    lines.append('source = "kvstore.models.deepseek"')
    for group in base.groups:
        # An index key or a tail is owned where its entry is.
        owner = next((o for o in owners if group.name.startswith(o)), None)
        lines += _group(group, list(owners[owner]) if owner else group.layers)
    return "\n".join(lines)


def _group(group: Group, layers: Sequence[int]) -> list[str]:
    lines = [
        "[[arch.group]]",
        f'name = "{group.name}"',
        f'kind = "{group.kind}"',
        f"layers = {list(layers)}",
        f"ratio = {group.ratio}",
        f"draft = {str(group.draft).lower()}",
    ]
    if group.window is not None:
        lines.append(f"window = {group.window}")
    if group.heads:
        dim = group.elements // (2 * group.heads)
        lines += [f"heads = {group.heads}", f"dim = {dim}"]
    else:
        lines.append(f"elements = {group.elements}")
    if group.kind == "state":
        rows, first, every, halves = _TAILS[group.name]
        lines += [
            f"rows = {rows}",
            f"from = {first}",
            f"span = {4 if rows else every - 1}",
            "feeds_entries_only = true",
            f"open = {{ every = {every}, elements = {halves * group.elements} }}",
        ]
    return lines
