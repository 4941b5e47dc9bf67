"""From the fields of a configuration to the groups of a layout."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from kvstore.layouts import states
from kvstore.layouts.fields import Config, runs
from kvstore.layouts.v4 import place_v4

#: Layer types without a cache of their own.
_NOTHING = {"mlp", "moe", "dummy"}
#: Spellings of older configurations.
_LEGACY = {
    "attention": "full_attention",
    "mamba": "linear_attention",
    "mamba2": "linear_attention",
    "recurrent": "linear_attention",
    "full": "full_attention",
    "global": "full_attention",
    "sliding": "sliding_attention",
    "local": "sliding_attention",
    "*": "full_attention",
    "M": "linear_attention",
    "-": "mlp",
    "E": "moe",
}
#: Model types whose cache transformers keeps outside its cache object.
_NO_CACHE_OBJECT = {
    "rwkv": "its state is a list of tensors, not a cache object",
    "xlstm": "its state is an xLSTMCache, not layers of a cache object",
    "recurrent_gemma": "its state lives in the modules",
    "reformer": "it caches buckets and states, not keys and values",
    "xlnet": "its mems are hidden states, not keys and values",
}


@dataclass
class Placed:
    """A registry entry in the making."""

    name: str
    layers: int
    dtype: str
    source: str
    draft_layers: int = 0
    forms: list[str] = field(default_factory=list)
    block_tokens: int = 64
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, layer: int, fields: dict[str, Any]) -> str:
        """Puts a layer into the group of these fields; groups of one name get numbers."""
        key = name
        for number in range(2, 4096):
            known = self.groups.get(key)
            if known is None or all(known.get(k) == v for k, v in fields.items()):
                break
            key = f"{name}-{number}"
        self.groups.setdefault(key, dict(fields, layers=[]))["layers"].append(layer)
        return key

    def toml(self) -> str:
        """The entry in the registry's form."""
        lines = [
            "[[arch]]",
            f"name = {json.dumps(self.name)}",
            f"layers = {self.layers}",
            f"draft_layers = {self.draft_layers}",
            f"block_tokens = {self.block_tokens}",
            f"forms = {json.dumps(self.forms)}",
            'default_form = "transformers"',
            f"source = {json.dumps(self.source)}",
            'confidence = "M"',
            "",
            "[[arch.form]]",
            'name = "transformers"',
            f'all = "{self.dtype}"',
            'source = "transformers cache_utils, in the model\'s type"',
        ]
        if self.records:
            lines += ["", "[arch.form.records]"]
            lines += [f"{name} = {toml_value(table)}" for name, table in self.records.items()]
        for name, fields in self.groups.items():
            lines += ["", "[[arch.group]]", f"name = {json.dumps(name)}"]
            lines += [f"{key} = {toml_value(value)}" for key, value in fields.items()]
        return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    """A value as TOML text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return runs(value)
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {toml_value(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)


def place(cfg: Config, dtype: str) -> Placed:
    """The entry of a configuration whose cache is kept in ``dtype``."""
    if cfg.model_type in _NO_CACHE_OBJECT:
        raise cfg.cannot("model_type", _NO_CACHE_OBJECT[cfg.model_type])
    if cfg.get("vocab_size") is None:
        raise cfg.cannot("vocab_size", "is absent: nothing here is cached per token of a prompt")
    types = layer_types(cfg)
    name = cfg.model_type or "config"
    source = f"fields of a transformers configuration of type {name}"
    placed = Placed(name=name, layers=len(types), dtype=dtype, source=source)
    if cfg.get("block_configs"):
        raise cfg.cannot("block_configs", "heads differ by layer in a form that is not read here")
    if any("compressed" in kind for kind in types) or cfg.get("compress_ratios"):
        place_v4(cfg, placed, types)
        return placed
    shared = _shared(cfg, types)
    for layer, kind in enumerate(types):
        if kind not in _NOTHING and layer not in shared:
            _place_layer(cfg.layer(layer), placed, layer, kind)
    if not placed.groups:
        raise cfg.cannot("layer_types", "no layer keeps a cache")
    _forms(cfg, placed)
    return placed


def layer_types(cfg: Config) -> list[str]:
    """The kind of cache of each layer, in transformers' words."""
    types = cfg.first("layer_types", "layers_block_type", "hybrid_override_pattern")
    if types is None:
        types = states.nested_types(cfg)
    if types is None:
        types = states.inferred_types(cfg) or _types_from_windows(cfg)
    if not isinstance(types, list | tuple | str) or not types:
        raise cfg.cannot("layer_types", f"= {types!r} is no list of kinds")
    types = [_LEGACY.get(str(kind), str(kind)) for kind in types]
    if cfg.model_type == "longcat_flash" and cfg.get("num_hidden_layers") is None:
        types = [kind for kind in types for _ in range(2)]  # two attentions in each of num_layers
    return types


def _types_from_windows(cfg: Config) -> list[str]:
    count = cfg.layer_count()
    kinds = []
    for layer in range(count):
        one = cfg.layer(layer)
        if one.get("sliding_window") and one.get("use_sliding_window", True):
            kinds.append("sliding_attention")
        elif one.get("attention_chunk_size"):
            kinds.append("chunked_attention")
        else:
            kinds.append("full_attention")
    return kinds


def _shared(cfg: Config, types: list[str]) -> set[int]:
    """Layers that read the cache of another one."""
    modes = cfg.get("kv_sharing_modes")
    if isinstance(modes, list | tuple):
        return {layer for layer, mode in enumerate(modes) if mode == "reuse"}
    last = cfg.get("num_kv_shared_layers") or 0
    shared = set(range(len(types) - last, len(types))) if last else set()
    sources = cfg.get("kv_source_layers")
    if isinstance(sources, list | tuple):
        shared |= {layer for layer, source in enumerate(sources) if source != layer}
    return shared


def _place_layer(cfg: Config, placed: Placed, layer: int, kind: str) -> None:
    match kind:
        case "full_attention":
            _attention(cfg, placed, layer, None)
        case "sliding_attention" | "chunked_attention":
            _attention(cfg, placed, layer, _window(cfg, kind))
        case "indexed_attention" | "minimax_m3_sparse":
            _attention(cfg, placed, layer, None)
            _indexer(cfg, placed, layer)
        case "linear_attention" | "conv":
            states.place(cfg, placed, layer, kind)
        case "hybrid":
            _attention(cfg, placed, layer, None)
            states.place(cfg, placed, layer, kind)
        case "hybrid_sliding":
            _attention(cfg, placed, layer, _window(cfg, kind))
            states.place(cfg, placed, layer, kind)
        case _:
            raise cfg.cannot("layer_types", f"kind {kind!r} is not known")


def _window(cfg: Config, kind: str) -> int:
    if kind == "chunked_attention":
        return cfg.number("attention_chunk_size")
    return cfg.number("sliding_window", "sliding_window_size")


def _attention(cfg: Config, placed: Placed, layer: int, window: int | None) -> None:
    if cfg.get("kv_lora_rank"):
        width = cfg.number("kv_lora_rank") + cfg.number("qk_rope_head_dim", default=0)
        fields: dict[str, Any] = {"role": "mla", "elements": width}
        top = cfg.get("index_topk")
        name = "mla"
    else:
        heads, key, value = kv_shape(cfg, sliding=window is not None)
        fields = {"role": "kv", "heads": heads, "dim": key}
        if value != key:
            fields["value_dim"] = value
        top = None
        name = "kv"
    if window is not None:
        placed.add("window", layer, {"kind": "window", "window": window, **fields})
        return
    group = placed.groups[placed.add(name, layer, fields)]
    if top is not None:
        group["reads"] = [{"layers": len(group["layers"]), "most": top}]


def kv_shape(cfg: Config, *, sliding: bool = False) -> tuple[int, int, int]:
    """Key-value heads, width of a key, width of a value."""
    heads = cfg.number(
        *(["decoder_attention_heads"] if cfg.get("is_encoder_decoder") else []),
        "num_attention_heads",
        "n_head",
        "n_heads",
        "num_heads",
        "attention_heads",
    )
    hidden = cfg.first("d_model", "hidden_size", "n_embd")
    head_dim = cfg.first("head_dim", "d_kv", "attention_head_dim")
    if head_dim is None:
        if not isinstance(hidden, int) or heads == 0:
            raise cfg.cannot("head_dim", f"is absent, and {hidden!r} / {heads} is no number")
        head_dim = hidden // heads  # rounded down, as the models do
    kv_heads = _kv_heads(cfg, heads)
    value = head_dim
    if cfg.get("v_head_dim") and not cfg.get("kv_lora_rank"):
        value = cfg.number("v_head_dim")
    if sliding and cfg.model_type == "mimo_v2_flash":
        kv_heads *= 2  # the model doubles them on sliding layers
    if sliding and cfg.get("swa_num_key_value_heads"):
        kv_heads = cfg.number("swa_num_key_value_heads")
        head_dim = cfg.number("swa_head_dim", default=head_dim)
        value = cfg.number("swa_v_head_dim", default=head_dim)
    if not kv_heads or not head_dim:
        raise cfg.cannot("num_key_value_heads", f"= {kv_heads} heads of {head_dim}")
    return kv_heads, head_dim, value


def _kv_heads(cfg: Config, heads: int) -> int:
    if cfg.get("multi_query") and not cfg.get("new_decoder_architecture"):
        return 1
    attention = cfg.get("attn_config")
    inner = Config(attention).get("kv_n_heads") if attention is not None else None
    found = inner or cfg.first("num_key_value_heads", "num_kv_heads", "multi_query_group_num")
    if found is None:
        return heads
    if isinstance(found, list | tuple):
        raise cfg.cannot("num_key_value_heads", "differs by layer")
    return int(found)


def _indexer(cfg: Config, placed: Placed, layer: int) -> None:
    owners = cfg.get("indexer_types")
    if isinstance(owners, list | tuple) and owners[layer] == "shared":
        return
    width = cfg.first("index_head_dim", "indexer_head_dim", "sparse_index_dim")
    if width is None:
        raise cfg.cannot("index_head_dim", "is absent on a layer with an indexer")
    pooled = cfg.get("index_kpool")
    if pooled:
        width = 2 * width + 1  # key, gate and validity of each token, pooled when they are read
    placed.add("index", layer, {"role": "index", "elements": width})
    if cfg.model_type == "qwen4_exp_text" and len(placed.groups["index"]["layers"]) == 1:
        _positions(placed, layer)
    blocks = cfg.first("index_topk_blocks", "sparse_topk_blocks")
    if blocks is not None:
        _sparse_reads(placed, blocks * cfg.number("index_block_size", "sparse_block_size"))


def _positions(placed: Placed, layer: int) -> None:
    """transformers keeps the positions of all tokens, on three axes, in the first indexed layer."""
    placed.add("positions", layer, {"role": "positions", "elements": 3})
    placed.records["positions"] = {"record": "int64"}


def _sparse_reads(placed: Placed, most: int) -> None:
    """Layers with a block indexer read so many entries, the others all."""
    index, entries = placed.groups["index"]["layers"], placed.groups["kv"]
    dense = len(set(entries["layers"]) - set(index))
    entries["reads"] = [{"layers": dense}] if dense else []
    entries["reads"].append({"layers": len(index), "most": most})


def _forms(cfg: Config, placed: Placed) -> None:
    """The form sets of engines that hold for these widths, and the draft layers."""
    widths = {g.get("role"): g.get("elements") for g in placed.groups.values()}
    has_state = any(g.get("kind") == "state" for g in placed.groups.values())
    if "mla" in widths:
        standard = widths["mla"] == 576 and widths.get("index", 128) == 128
        if standard:
            placed.forms = ["dsa" if "index" in widths else "mla"]
        _draft(cfg, placed)
    else:
        placed.forms = ["hybrid"] if has_state else ["dense"]
        if "positions" in widths:
            placed.forms = []  # what other engines keep of them is not known


def _draft(cfg: Config, placed: Placed) -> None:
    """MTP layers keep what the last layer keeps, in groups of their own."""
    count = cfg.get("num_nextn_predict_layers") or 0
    last = placed.layers - 1
    copies = {
        f"mtp-{name}": dict(group, draft=True)
        for name, group in placed.groups.items()
        if (last in group["layers"] or name == "index") and group.get("kind") != "state"
    }
    if not count or not copies:
        return
    placed.draft_layers = count
    for name, group in copies.items():
        group["layers"] = list(range(placed.layers, placed.layers + count))
        group.pop("reads", None)
        placed.groups[name] = group
