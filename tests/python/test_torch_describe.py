"""Descriptions of models: what differs is another namespace, and `explain` names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kvstore
import numpy as np
import pytest
from kvstore.layouts import Layout
from kvstore.models import families

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytestmark = pytest.mark.torch

from kvstore.torch.describe import describe  # noqa: E402
from kvstore.torch.weights import fingerprint  # noqa: E402

TOKENS = np.arange(200, dtype=np.uint32)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kvstore.Store]:
    with kvstore.open(tmp_path / "kv", disk_bytes="128 MiB", host_bytes="32 MiB") as opened:
        yield opened


def _namespace(store: kvstore.Store, model: Any) -> kvstore.Namespace:
    layout = Layout.from_hf_config(model.config)
    return store.namespace(layout, weights=fingerprint(model), **describe(model))


def _stored(store: kvstore.Store, model: Any) -> kvstore.Namespace:
    ns = _namespace(store, model)
    blocks = len(TOKENS) // ns.layout.block_tokens
    ns.put(TOKENS, np.zeros((blocks, ns.layout.body_bytes), np.uint8)).wait()
    return ns


def _differing(store: kvstore.Store, one: Any, other: Any) -> set[str]:
    """The fields that `explain` names for a model where another one's cache is stored."""
    stored, ns = _stored(store, one), _namespace(store, other)
    assert stored.match(TOKENS).matched == 192
    if ns.digest == stored.digest:
        return set()
    assert ns.match(TOKENS).matched == 0
    return {field.field for field in ns.explain(TOKENS).differs}


def _llama(change: Callable[[Any], None] | None = None, **fields: Any) -> Any:
    config = families.toy("llama")
    for name, value in fields.items():
        setattr(config, name, value)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    if change is not None:
        with torch.no_grad():
            change(model)
    return model


def _one_weight(model: Any) -> None:
    model.model.layers[1].self_attn.k_proj.weight[0, 0] += 1e-3


def _eager(model: Any) -> None:
    model.set_attn_implementation("eager")


YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0}
LONGER_YARN = YARN | {"factor": 8.0}


@pytest.mark.parametrize(
    ("other", "fields"),
    [
        (lambda: _llama(), set()),
        (lambda: _llama(_one_weight), {"weights"}),
        (lambda: _llama(_eager), {"extra.attention"}),
        (lambda: _llama(rope_parameters=YARN), {"extra.rope"}),
        (lambda: _llama(rms_norm_eps=1e-5), {"extra.config"}),
        (lambda: _llama().bfloat16(), {"weights", "dtype"}),
        (lambda: _llama(use_cache=False, attention_dropout=0.5), set()),
    ],
)
def test_what_differs_is_named(
    store: kvstore.Store, other: Callable[[], Any], fields: set[str]
) -> None:
    assert _differing(store, _llama(), other()) == fields


def test_long_values_differ_by_their_digest(store: kvstore.Store) -> None:
    one = _llama(rope_parameters=YARN | {"original_max_position_embeddings": 4096, "mscale": 1.0})
    two = _llama(
        rope_parameters=LONGER_YARN | {"original_max_position_embeddings": 4096, "mscale": 1.0}
    )
    ropes = [describe(model)["extra"]["rope"] for model in (one, two)]
    assert all(len(rope) <= 96 for rope in ropes)
    assert _differing(store, one, two) == {"extra.rope"}


def test_windows_and_experts(store: kvstore.Store) -> None:
    gemma, narrow = families.toy_model("gemma3_text"), families.toy_model("gemma3_text")
    assert describe(gemma)["extra"]["window"] == "128"
    narrow.config.sliding_window = 96
    assert _differing(store, gemma, narrow) == {"extra.window", "layout"}
    mixed = families.toy_model("qwen3_next")
    before = describe(mixed)
    assert before["extra"]["experts"] == "grouped_mm"
    mixed.set_experts_implementation("eager")
    assert describe(mixed)["extra"] == before["extra"] | {"experts": "eager"}


@pytest.mark.parametrize("name", families.TOYS)
def test_every_family_fits_a_namespace(store: kvstore.Store, name: str) -> None:
    """Whose description has 960 bytes, also with a long name and an adapter."""
    model = families.toy_model(name)
    model.config._name_or_path = "an-organisation/" + "a-model-with-a-long-name-" * 8
    model.config._commit_hash = "0123456789" * 4
    described = describe(model) | {"adapter": bytes(32)}
    layout = Layout.from_hf_config(model.config)
    assert store.namespace(layout, weights=bytes(32), **described).digest


def test_the_name_and_the_revision() -> None:
    model = families.toy_model("llama")
    for given, name in [
        ("", "llama"),
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("/home/somebody/models/mine", "mine"),
        ("./models/mine", "mine"),
        ("a/b/mine", "mine"),
    ]:
        model.config._name_or_path = given
        assert describe(model)["model"] == name
    model.config._commit_hash = "abc"
    assert describe(model)["revision"] == "abc"
    assert "adapter" not in describe(model)


def test_a_saved_model_is_the_same_after_loading(tmp_path: Path) -> None:
    model = families.toy_model("llama", dtype="bfloat16")
    model.save_pretrained(tmp_path / "mine")
    causal: Any = transformers.AutoModelForCausalLM
    loaded = causal.from_pretrained(tmp_path / "mine")
    assert describe(loaded) == describe(model) | {"model": "mine"}
    assert fingerprint(loaded) == fingerprint(model)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_compiled_models_are_those_inside() -> None:
    model = families.toy_model("llama")
    compiled = torch.compile(model)
    assert describe(compiled) == describe(model)
    assert fingerprint(compiled) == fingerprint(model)


def test_quantization_is_named() -> None:
    model = families.toy_model("llama")
    model.config.quantization_config = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert describe(model)["extra"]["quantization"] == (
        '{"quant_method":"fp8","weight_block_size":[128,128]}'
    )
