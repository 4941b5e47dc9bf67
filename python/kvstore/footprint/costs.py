"""What caches cost on a machine: ranks, what fits, what it costs to keep, what a store adds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from kvstore._core import Layout
from kvstore.footprint.chosen import SLOT_UNIT, Chosen, name_of, slot_bytes
from kvstore.footprint.table import Table

#: Bytes of one slot descriptor and about one index entry of the store.
DESCRIPTOR, INDEX_ENTRY = 64, 80


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
