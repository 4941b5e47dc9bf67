"""DeepSeek V4's groups: pooled entries, index keys, windows, compressor rows, draft windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvstore.layouts.fields import Config

if TYPE_CHECKING:
    from kvstore.layouts.place import Placed

_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


def place_v4(cfg: Config, placed: Placed, types: list[str]) -> None:
    """DeepSeek V4: by transformers' layer types, or by the ``compress_ratios`` of the original."""
    ratios = cfg.get("compress_ratios")
    rates = dict(cfg.get("compress_rates") or {})
    kind_of = {4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
    draft = cfg.get("num_nextn_predict_layers") or 0
    if isinstance(ratios, list | tuple):
        count = cfg.layer_count()
        draft = max(len(ratios) - count, 0)
        unknown = [ratio for ratio in ratios[:count] if ratio not in {0, *kind_of}]
        if unknown or len(ratios) < count:
            why = f"= {ratios!r}: one of 0, 4, 128 for each of {count} layers"
            raise cfg.cannot("compress_ratios", why)
        types = [kind_of.get(ratio, "sliding_attention") for ratio in ratios[:count]]
    csa = [i for i, kind in enumerate(types) if kind == "compressed_sparse_attention"]
    hca = [i for i, kind in enumerate(types) if kind == "heavily_compressed_attention"]
    rate = {kind: int(rates.get(kind, default)) for default, kind in kind_of.items()}
    width, index = cfg.number("head_dim"), cfg.number("index_head_dim")
    window = cfg.number("sliding_window")
    placed.layers, placed.draft_layers = len(types), draft
    placed.block_tokens = max(rate.values())
    if rate != {kind: ratio for ratio, kind in kind_of.items()}:
        raise cfg.cannot("compress_rates", f"= {rates!r} must be 4 and 128")
    if (width, index) == (512, 128):
        placed.forms = ["v4"]
    every: dict[str, tuple[list[int], dict[str, Any]]] = {
        "csa": (csa, {"ratio": 4, "elements": width}),
        "csa-index": (csa, {"role": "index", "ratio": 4, "elements": index}),
        "hca": (hca, {"ratio": 128, "elements": width}),
        "window": (
            list(range(len(types))),
            {"kind": "window", "window": window, "elements": width},
        ),
        "csa-tail": (csa, _tail(4, 4, 2 * width, 4 * width)),
        "csa-index-tail": (csa, _tail(4, 4, 2 * index, 4 * index)),
        "hca-tail": (hca, _tail(0, 128, 2 * width, 2 * width)),
        "mtp-window": (
            list(range(len(types), len(types) + draft)),
            {
                "role": "window",
                "kind": "window",
                "window": window,
                "elements": width,
                "draft": True,
            },
        ),
    }
    for name, (layers, fields) in every.items():
        if layers:
            placed.groups[name] = dict(fields, layers=layers)
    if csa:
        placed.groups["csa"]["reads"] = [{"layers": len(csa), "most": cfg.number("index_topk")}]
    own, wide = _BYTES[placed.dtype], 4
    for name, elements in (("csa-tail", width), ("csa-index-tail", index), ("hca-tail", width)):
        if name not in placed.groups:
            continue
        halves = 2 if name != "hca-tail" else 1  # an open CSA row serves two groups
        planes = [elements * own, elements * wide] if halves == 2 else [2 * elements * own]
        record = {"planes": planes, "open_bytes": 2 * halves * elements * own}
        placed.records[name] = record


def _tail(rows: int, every: int, kept: int, opened: int) -> dict[str, Any]:
    return {
        "role": "tail",
        "kind": "state",
        "elements": kept,
        "rows": rows,
        "from": every if rows else 1,
        "span": 4 if rows else every - 1,
        "feeds_entries_only": True,
        "open": {"every": every, "elements": opened},
        "ring": {"rows": 8 if rows else every, "elements": opened},
    }
