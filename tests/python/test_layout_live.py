"""Layouts against live caches: a toy model's cache has the bytes that the layout counts."""

from __future__ import annotations

from typing import Any

import pytest
from kvstore.layouts import CannotPlace, Layout
from kvstore.models import families

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

#: Tokens of the prefill and after it: past the windows, and no multiple of a compressor's 4 or 128,
#: so that an open group counts as well.
PREFILL, STEPS = 300, 5


def _live(model: Any) -> Any:
    """The cache of a model after a prefill and single steps, as transformers leaves it."""
    ids = torch.randint(3, 255, (1, PREFILL + STEPS), generator=torch.Generator().manual_seed(1))
    cache, name = None, "past_key_values"
    pieces = [(0, PREFILL), *((at, at + 1) for at in range(PREFILL, PREFILL + STEPS))]
    for start, end in pieces:
        given: dict[str, Any] = {} if cache is None else {name: cache}
        positions = torch.arange(start, end)[None]
        out = model(ids[:, start:end], position_ids=positions, use_cache=True, **given)
        name = next(key for key in ("past_key_values", "cache_params") if key in out)
        cache = out[name]
    assert torch.isfinite(out.logits).all()
    return cache


def _bytes(value: Any, seen: set[tuple[int, tuple[int, ...]]]) -> int:
    """Bytes of the tensors in a layer's attributes, aliases counted once."""
    if torch.is_tensor(value):
        key = (value.data_ptr(), tuple(value.shape))
        if value.dim() == 0 or (key in seen and value.numel()):
            return 0
        seen.add(key)
        return int(value.numel() * value.element_size())
    if isinstance(value, dict):
        return sum(_bytes(item, seen) for item in value.values())
    if isinstance(value, list | tuple):
        return sum(_bytes(item, seen) for item in value)
    return 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", families.TOYS)
def test_the_layout_counts_the_live_cache(name: str, dtype: str) -> None:
    model = families.toy_model(name, dtype)
    with torch.no_grad():
        cache = _live(model)
    live, seen = 0, set[tuple[int, tuple[int, ...]]]()
    for layer in cache.layers:
        attributes = dict(vars(layer))
        if name == "deepseek_v4":
            attributes.pop("values", None)  # K and V are one vector: stored once
        live += _bytes(attributes, seen)
    tokens = PREFILL + STEPS
    layout = Layout.from_hf_config(model.config, dtype=dtype)
    counted = (
        layout.entry_bytes(tokens) + layout.window_bytes_at(tokens) + layout.state_bytes(tokens)
    )
    assert counted == live


@pytest.mark.parametrize("name", families.TOYS)
def test_a_fresh_cache_has_the_layers_of_the_live_one(name: str) -> None:
    """No toy has a field that would give its cache layers which its model does not use."""
    model = families.toy_model(name)
    with torch.no_grad():
        cache = _live(model)
    fresh = transformers.DynamicCache(config=model.config)
    assert [type(layer) for layer in fresh.layers] == [type(layer) for layer in cache.layers]


@pytest.mark.parametrize("name", families.TOYS)
def test_a_toy_sets_only_fields_that_its_family_has(name: str) -> None:
    cls = transformers.CONFIG_MAPPING[name]
    known = set(cls.__dataclass_fields__) | set(cls.attribute_map)
    known |= {"global_head_dim"} if name == "gemma4_text" else set()  # read, not kept
    assert set(families.TOYS[name]) <= known


def test_a_toy_is_the_same_model_for_the_same_seed() -> None:
    one, two, other = (families.toy_model("llama", seed=seed) for seed in (3, 3, 4))
    weights = [next(model.parameters()) for model in (one, two, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_what_is_no_family_names_those_that_are() -> None:
    with pytest.raises(KeyError, match="'gpt' is not one of llama, "):
        families.toy("gpt")


def test_refused_families_have_a_reason_and_no_toy() -> None:
    assert not set(families.REFUSED) & set(families.TOYS)
    for name, reason in families.REFUSED.items():
        assert name in transformers.CONFIG_MAPPING
        assert len(reason) > 20


@pytest.mark.parametrize("name", ["recurrent_gemma", "rwkv", "xlstm"])
def test_refused_families_without_a_cache_object_have_no_layout(name: str) -> None:
    with pytest.raises(CannotPlace, match="model_type"):
        Layout.from_hf_config(transformers.AutoConfig.for_model(name))
