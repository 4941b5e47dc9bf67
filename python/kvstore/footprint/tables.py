"""The tables of ``kvstore footprint``, computed exactly from layouts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from kvstore.footprint.chosen import Chosen, name_of, slot_bytes
from kvstore.footprint.costs import Basis
from kvstore.footprint.table import Cell, Table

#: DeepSeek LLM 67B in bf16, the founding paper's baseline: 2 x 95 x 8 x 128 x 2 B.
BASELINE = Fraction(389_120)
#: V3.2 with 656 + 132 B records, the baseline of V4's claims: 61 x 788 B.
V32 = Fraction(48_068)

CONTEXTS = (4_096, 32_768, 131_072, 1_048_576)
INTERVALS = (128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 65_536)


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
        only_in_files=frozenset({"title"}),
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
