"""Configurations with the caches of released models: the registry's bytes, in models that run."""

from __future__ import annotations

import pytest
from kvstore.layouts import Layout, architectures
from kvstore.models.geometry import GEOMETRIES, true_geometry

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("name", GEOMETRIES)
def test_the_cache_is_that_of_the_registry(name: str) -> None:
    config = true_geometry(name)
    ours, registry = Layout.from_hf_config(config), Layout.named(name, "transformers")
    assert ours.body_bytes == registry.body_bytes
    assert ours.window_bytes == registry.window_bytes
    assert ours.checkpoint_bytes == registry.checkpoint_bytes
    assert ours.block_tokens == registry.block_tokens
    assert ours.read_bytes(100_000) == registry.read_bytes(100_000)
    layers = [sorted(group.layers for group in layout.groups) for layout in (ours, registry)]
    assert layers[0] == layers[1]


def test_it_knows_most_of_the_registry() -> None:
    """All but what transformers 5.24 has no causal model for, or cannot restore."""
    released = {arch.name for arch in architectures() if not arch.counterfactual}
    assert released - set(GEOMETRIES) == {
        "deepseek-v4.1-flash",
        "minimax-text-01",
        "mistral-4",
        "mistral-large-4",
        "nsa-27b",
    }


@pytest.mark.parametrize("name", ["gemma-3-1b", "qwen3-0.6b", "glm-5", "deepseek-v4-flash"])
def test_such_a_model_runs(name: str) -> None:
    torch.manual_seed(0)
    config = true_geometry(name)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    assert sum(parameter.numel() for parameter in model.parameters()) < 50e6
    ids = torch.randint(3, 255, (1, 40))
    with torch.no_grad():
        out = model(ids, position_ids=torch.arange(40)[None], use_cache=True)
    assert torch.isfinite(out.logits).all()
    assert len(out.past_key_values.layers) == Layout.named(name).model_layers


def test_aliases_and_names_without_a_geometry() -> None:
    assert true_geometry("glm-5").num_hidden_layers == 78
    alias = next(a for arch in architectures() if arch.name == "kimi-k2" for a in arch.aliases)
    assert true_geometry(alias).to_dict() == true_geometry("kimi-k2").to_dict()
    with pytest.raises(KeyError, match=r"'nsa-27b' is not one of deepseek-llm-7b, "):
        true_geometry("nsa-27b")
