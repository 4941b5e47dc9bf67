"""The tables of ``kvstore footprint``, computed exactly from layouts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from kvstore._core import Architecture, Layout
from kvstore.footprint.table import Cell, Table

__all__ = [
    "Basis",
    "Table",
    "axes_table",
    "cost_table",
    "fit_table",
    "forms_table",
    "master_table",
    "overhead_table",
    "persistent_table",
    "rank_table",
    "read_table",
    "request_table",
]

#: DeepSeek LLM 67B in bf16, the founding paper's baseline: 2 x 95 x 8 x 128 x 2 B.
BASELINE = Fraction(389_120)
#: V3.2 with 656 + 132 B records, the baseline of V4's claims: 61 x 788 B.
V32 = Fraction(48_068)
#: Slots are multiples of this many bytes.
SLOT_UNIT = 4096
#: Bytes of one slot descriptor and about one index entry of the store.
DESCRIPTOR, INDEX_ENTRY = 64, 80

CONTEXTS = (4_096, 32_768, 131_072, 1_048_576)
INTERVALS = (128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 65_536)


@dataclass(frozen=True)
class Basis:
    """The machine and the prices that times, capacities and costs are for. GB and TB are 10^9 and
    10^12 bytes."""

    hbm_gb: float = 141.0
    hbm_tb_s: float = 4.8
    devices: int = 8
    #: Share of HBM that weights and cache may use.
    usable: float = 0.9
    ssd_usd_tb_month: float = 20.0
    device_usd_hour: float = 3.0
    tokens: int = 131_072
    interval: int = 8_192

    def line(self) -> str:
        """The basis in one line."""
        return (
            f"Assumed: {self.devices} devices of {self.hbm_gb:g} GB HBM at {self.hbm_tb_s:g} TB/s, "
            f"{self.usable:.0%} of it usable; SSD at {self.ssd_usd_tb_month:g} USD per TB and "
            f"month, a device at {self.device_usd_hour:g} USD per hour."
        )


#: What tables are made of: the architecture (None for a layout from elsewhere) and its layout.
Chosen = tuple[Architecture | None, Layout]


def name_of(chosen: Chosen) -> str:
    """What a table calls it: the name under which the registry finds it."""
    architecture, layout = chosen
    name: str = architecture.name if architecture else layout.name
    return name


def slot_bytes(layout: Layout, unit: int = SLOT_UNIT) -> int:
    """Bytes of the slot of one body: its length rounded up to the store's unit."""
    slots: int = -(-layout.body_bytes // unit)
    return slots * unit


def master_table(chosen: Iterable[Chosen]) -> Table:
    """Elements, layers and bytes per token of each architecture, and its ratio to the baseline."""
    table = Table(
        "master",
        "Cache per token",
        [
            "name",
            "title",
            "released",
            "mechanism",
            "form",
            "elements_per_token_and_layer",
            "owners",
            "layers",
            "bytes_per_token",
            "padded",
            "body_tokens",
            "bytes_in_body",
            "bytes_in_slot",
            "baseline_over_this",
            "percent_of_v32",
            "sure",
        ],
        notes=[
            "bytes per token: logical, entries groups only. padded: in the engine's pages. In a "
            "body: with the body's own alignment; in a slot: rounded up to 4 KiB.",
            f"Baseline: DeepSeek LLM 67B, bf16, {BASELINE} B. V3.2: {V32} B (656 + 132).",
            "sure: H primary source, M implementation or second-hand, L memory or library default.",
        ],
    )
    for architecture, layout in chosen:
        per_token = layout.bytes_per_token()
        padded = layout.bytes_per_token(padded=True)
        table.add(
            name=name_of((architecture, layout)),
            title=architecture.title if architecture else "",
            released=architecture.released if architecture else "",
            mechanism=architecture.mechanism if architecture else "",
            form=layout.form,
            elements_per_token_and_layer=layout.elements_per_token() / layout.model_layers,
            owners=layout.owner_layers,
            layers=layout.model_layers,
            bytes_per_token=per_token,
            padded=padded if padded != per_token else None,
            body_tokens=layout.block_tokens,
            bytes_in_body=Fraction(layout.body_bytes, layout.block_tokens),
            bytes_in_slot=Fraction(slot_bytes(layout), layout.block_tokens),
            baseline_over_this=BASELINE / per_token if per_token else None,
            percent_of_v32=per_token / V32 * 100,
            sure=architecture.confidence if architecture else "",
        )
        if per_token and (architecture is None or not architecture.counterfactual):
            table.notes += _claims(table.rows[-1])
    return table


def _claims(row: dict[str, Cell]) -> list[str]:
    """The figures that vendors put into headlines, to the digits that they use."""
    percent, body, slot = (
        float(row[column] or 0) for column in ("percent_of_v32", "bytes_in_body", "bytes_in_slot")
    )
    if not str(row["mechanism"]).startswith("CSA"):
        return []
    exact = f"{body:.1f}" if (body * 10).is_integer() else f"{body:.2f}"
    return [
        f"{row['title'] or row['name']}: {exact} B per token in a body of {row['body_tokens']} "
        f"tokens, {slot:g} in its slot; {percent:.2f}% of V3.2."
    ]


def forms_table(chosen: Iterable[Chosen]) -> Table:
    """Bytes per token of each form of each architecture."""
    table = Table(
        "forms",
        "Cache per token by engine form",
        ["name", "form", "logical", "padded", "window", "state", "source"],
        notes=["window and state: bytes per request at a long context, as engines hold them."],
    )
    for architecture, layout in chosen:
        forms = architecture.forms if architecture else [(layout.form, "")]
        for form, source in forms:
            one = architecture.layout(form) if architecture else layout
            table.add(
                name=name_of((architecture, layout)),
                form=form,
                logical=one.bytes_per_token(),
                padded=one.bytes_per_token(padded=True),
                window=one.window_bytes_at(1 << 20, held=True),
                state=one.ring_bytes(),
                source=source,
            )
    return table


def persistent_table(chosen: Iterable[Chosen], intervals: Sequence[int] = INTERVALS) -> Table:
    """Bytes stored per token against the interval between resume points."""
    table = Table(
        "persistent",
        "Stored per token, with a resume point every p tokens",
        ["name", "p", "entries", "with_window", "with_exact_tails", "with_engine_tails"],
        notes=[
            "with window: w rows of each window layer per point; exact tails: what exact resume "
            "needs at an aligned point besides; engine tails: the whole rings that engines hold.",
            "p empty: entries only (V4.1 replays its window).",
        ],
    )
    for architecture, layout in chosen:
        name, entries = name_of((architecture, layout)), layout.bytes_per_token()
        if layout.resume_point_bytes(tails="engine"):
            for p in intervals:
                table.add(
                    name=name,
                    p=p,
                    entries=entries,
                    with_window=layout.persistent_per_token(p, tails="none"),
                    with_exact_tails=layout.persistent_per_token(p, tails="exact"),
                    with_engine_tails=layout.persistent_per_token(p, tails="engine"),
                )
        table.add(name=name, entries=entries)
    return table


def read_table(chosen: Iterable[Chosen], basis: Basis, contexts: Sequence[int] = CONTEXTS) -> Table:
    """Bytes read by one decode step, and the time that takes at the stated HBM bandwidth."""
    table = Table(
        "reads",
        "Read per decode step",
        ["name", "form", "tokens", "bytes", "milliseconds"],
        notes=[
            f"Cache reads of one request, at {basis.hbm_tb_s:g} TB/s; weights are not counted.",
            "A main entry counts once per layer that reads it.",
        ],
    )
    for architecture, layout in chosen:
        for n in contexts:
            read = layout.read_bytes(n)
            table.add(
                name=name_of((architecture, layout)),
                form=layout.form,
                tokens=n,
                bytes=read,
                milliseconds=read / (basis.hbm_tb_s * 1e9),
            )
    return table


def request_table(chosen: Iterable[Chosen], lengths: Sequence[int]) -> Table:
    """Bytes of one request at given lengths, by kind of group."""
    table = Table(
        "requests",
        "One request",
        ["name", "tokens", "entries", "window", "state", "held"],
        notes=[
            "window, state: what resuming at this length needs; held: entries, windows and rings."
        ],
    )
    for architecture, layout in chosen:
        for n in lengths:
            table.add(
                name=name_of((architecture, layout)),
                tokens=n,
                entries=layout.entry_bytes(n),
                window=layout.window_bytes_at(n),
                state=layout.state_bytes(n),
                held=layout.request_bytes(n),
            )
    return table


def rank_table(chosen: Iterable[Chosen], sizes: tuple[int, int, int], tokens: int) -> Table:
    """Bytes per group on one rank of a parallel deployment."""
    tp, pp, cp = sizes
    table = Table(
        "ranks",
        f"One rank of tp={tp}, pp={pp}, cp={cp} at {tokens:,} tokens",
        ["name", "group", "shard", "layers", "whole", "first_rank", "copies_over_tp"],
        notes=[
            "Replicated groups are the same bytes on every tensor rank: a store keeps one copy."
        ],
    )
    for architecture, layout in chosen:
        whole = layout.group_bytes(tokens, held=True)
        try:
            rank = layout.rank_bytes(tokens, sizes)
            copies = layout.tp_copies(tp)
        except ValueError as error:
            table.add(name=name_of((architecture, layout)), group=str(error))
            continue
        for i, group in enumerate(layout.groups):
            table.add(
                name=name_of((architecture, layout)),
                group=group.name,
                shard=f"{group.heads} heads" if group.heads else "replicated",
                layers=len(group.layers),
                whole=whole[i],
                first_rank=rank[i],
                copies_over_tp=copies[i],
            )
    return table


def fit_table(chosen: Iterable[Chosen], basis: Basis) -> Table:
    """Requests and tokens that fit in HBM beside the weights, and on SSD."""
    table = Table(
        "fit",
        f"What fits at {basis.tokens:,} tokens a request",
        [
            "name",
            "form",
            "weights_gb",
            "free_gb",
            "tokens_per_gb",
            "tokens_in_hbm",
            "requests_one_device_each",
            "requests_tensor_parallel",
            "tokens_per_tb_ssd",
            "requests_per_tb_ssd",
        ],
        notes=[
            basis.line(),
            "One device each: requests are dealt to devices, weights are spread over all. Tensor "
            "parallel: every request lies on all devices, replicated groups on each of them.",
            f"SSD: with a resume point every {basis.interval:,} tokens, exact tails.",
        ],
    )
    for architecture, layout in chosen:
        weights = architecture.weights if architecture else None
        weights_gb = weights[0] * weights[1] if weights else None
        total = basis.devices * basis.hbm_gb * basis.usable
        free_gb = total - weights_gb if weights_gb is not None else None
        per_token = layout.bytes_per_token()
        stored = layout.persistent_per_token(basis.interval, tails="exact")
        request = layout.request_bytes(basis.tokens)
        fits = free_gb is not None and free_gb > 0 and request > 0
        device = int(max(free_gb or 0, 0) * 1e9 / basis.devices)
        table.add(
            name=name_of((architecture, layout)),
            form=layout.form,
            weights_gb=weights_gb,
            free_gb=round(free_gb, 1) if free_gb is not None else None,
            tokens_per_gb=int(10**9 / per_token) if per_token else None,
            tokens_in_hbm=int(max(free_gb or 0, 0) * 1e9 / per_token)
            if per_token and free_gb is not None
            else None,
            requests_one_device_each=basis.devices * (device // request) if fits else None,
            requests_tensor_parallel=_tensor_parallel(layout, basis, device) if fits else None,
            tokens_per_tb_ssd=int(10**12 / stored) if stored else None,
            requests_per_tb_ssd=int(10**12 / (stored * basis.tokens)) if stored else None,
        )
    return table


def _tensor_parallel(layout: Layout, basis: Basis, device: int) -> int | None:
    try:
        held = sum(layout.rank_bytes(basis.tokens, (basis.devices, 1, 1)))
    except ValueError:
        return None
    return device // held if held else None


def cost_table(chosen: Iterable[Chosen], basis: Basis) -> Table:
    """Cost of keeping a million cached tokens under the stated prices."""
    table = Table(
        "cost",
        "A million cached tokens",
        ["name", "form", "gb_ssd", "usd_ssd_month", "gb_hbm", "usd_hbm_hour"],
        notes=[
            basis.line(),
            f"SSD with a resume point every {basis.interval:,} tokens. HBM: the share of a device "
            "that the entries fill.",
        ],
    )
    for architecture, layout in chosen:
        per_token = layout.bytes_per_token()
        stored = layout.persistent_per_token(basis.interval, tails="exact")
        gb_ssd, gb_hbm = float(stored) / 1e3, float(per_token) / 1e3
        table.add(
            name=name_of((architecture, layout)),
            form=layout.form,
            gb_ssd=gb_ssd,
            usd_ssd_month=gb_ssd / 1e3 * basis.ssd_usd_tb_month,
            gb_hbm=gb_hbm,
            usd_hbm_hour=gb_hbm / (basis.hbm_gb * basis.usable) * basis.device_usd_hour,
        )
    return table


def overhead_table(chosen: Iterable[Chosen], unit: int = SLOT_UNIT) -> Table:
    """What the store adds to a body, computed: slot rounding, descriptor, index entry."""
    table = Table(
        "overhead",
        "What a store adds per token (computed)",
        ["name", "body", "slot", "rounding", "descriptor", "index_in_memory", "on_disk_over_body"],
        notes=[
            f"Slots in units of {unit} B, descriptors of {DESCRIPTOR} B on disk, index entries of "
            f"about {INDEX_ENTRY} B in memory; the body's own bytes are the layout's.",
        ],
    )
    for architecture, layout in chosen:
        if not layout.body_bytes:
            continue
        per = layout.block_tokens
        slot = slot_bytes(layout, unit)
        table.add(
            name=name_of((architecture, layout)),
            body=Fraction(layout.body_bytes, per),
            slot=Fraction(slot, per),
            rounding=Fraction(slot - layout.body_bytes, per),
            descriptor=Fraction(DESCRIPTOR, per),
            index_in_memory=Fraction(INDEX_ENTRY, per),
            on_disk_over_body=Fraction(slot + DESCRIPTOR, layout.body_bytes),
        )
    return table


def axes_table(chosen: Iterable[Chosen]) -> Table:
    """Bytes per token as record bytes x entries per token and owner x owning layers, each factor
    against the row above; the product of the factors is the ratio of the bytes."""
    table = Table(
        "axes",
        "Three axes: record bytes x entries per token and owner x owning layers",
        [
            "name",
            "form",
            "record_bytes",
            "entries_per_token",
            "owning_layers",
            "bytes_per_token",
            "record_factor",
            "entries_factor",
            "layers_factor",
            "product",
        ],
        notes=[
            "record bytes: all bytes over all entries, a layer's index key counted with its entry. "
            "A factor is the row above over this row: how many times smaller.",
        ],
    )
    before: tuple[Fraction, Fraction, Fraction] | None = None
    totals = [Fraction(1)] * 3
    first: Fraction | None = None
    last = Fraction(0)
    for architecture, layout in chosen:
        entries, owners = layout.entries_per_token(), layout.owner_layers
        if not owners:
            continue
        per_token = layout.bytes_per_token()
        now = (per_token / entries, entries / owners, Fraction(owners))
        factors = [a / b for a, b in zip(before, now, strict=True)] if before else []
        totals = [t * f for t, f in zip(totals, factors, strict=True)] if factors else totals
        table.add(
            name=name_of((architecture, layout)),
            form=layout.form,
            record_bytes=now[0],
            entries_per_token=now[1],
            owning_layers=owners,
            bytes_per_token=per_token,
            **_factors(factors),
        )
        before, first, last = now, first if first is not None else per_token, per_token
    if first is not None and len(table.rows) > 1:
        table.add(name="first over last", bytes_per_token=first / last, **_factors(totals))
    return table


def _factors(factors: list[Fraction]) -> dict[str, Fraction]:
    if not factors:
        return {}
    record, entries, layers = factors
    return {
        "record_factor": record,
        "entries_factor": entries,
        "layers_factor": layers,
        "product": record * entries * layers,
    }
