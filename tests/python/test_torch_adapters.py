"""PEFT adapters: another adapter is another namespace, the weights below stay themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kvstore
import pytest
from kvstore.layouts import Layout
from kvstore.models import families

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")
peft = pytest.importorskip("peft", reason="needs peft")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

from kvstore.torch.adapters import adapter_digest  # noqa: E402
from kvstore.torch.describe import describe  # noqa: E402
from kvstore.torch.weights import fingerprint  # noqa: E402


def _lora(**fields: Any) -> Any:
    return peft.LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False, **fields
    )


def _adapted(config: Any = None, seed: int = 1) -> Any:
    model = families.toy_model("llama")
    torch.manual_seed(seed)
    return peft.get_peft_model(model, config or _lora()).eval()


def _value(model: Any) -> None:
    next(p for n, p in model.named_parameters() if "lora_B" in n).data[0, 0] += 1


def _scaling(model: Any) -> None:
    for _, module in model.named_modules():
        if isinstance(getattr(module, "scaling", None), dict):
            module.scaling["default"] *= 2


def test_an_adapter_leaves_the_weights_and_their_names() -> None:
    base = families.toy_model("llama")
    adapted = _adapted()
    assert adapter_digest(base) is None
    assert "adapter" not in describe(base)
    described = describe(adapted)
    assert len(described.pop("adapter")) == 32
    assert described == describe(base)
    assert fingerprint(adapted) != fingerprint(base), "safe without describe() as well"
    with adapted.disable_adapter():
        assert "adapter" not in describe(adapted)
        assert fingerprint(adapted) == fingerprint(base)


def test_the_digest_is_of_the_content() -> None:
    before = adapter_digest(_adapted())
    assert before == adapter_digest(_adapted())
    assert before != adapter_digest(_adapted(seed=2))


@pytest.mark.parametrize("change", [_value, _scaling])
def test_a_changed_value_or_scaling_changes_it(change: Callable[[Any], None]) -> None:
    model = _adapted()
    before = adapter_digest(model), fingerprint(model)
    change(model)
    assert adapter_digest(model) != before[0]
    assert fingerprint(model) != before[1]


def test_the_configuration_counts_and_its_origin_does_not() -> None:
    model = _adapted()
    before = adapter_digest(model)
    config = model.peft_config["default"]
    config.base_model_name_or_path = "somewhere/else"
    config.inference_mode = not config.inference_mode
    assert adapter_digest(model) == before
    config.alpha_pattern = {"q_proj": 16}
    assert adapter_digest(model) != before


@pytest.mark.parametrize(
    "config",
    [
        _lora(use_dora=True),
        _lora(use_rslora=True),
        _lora(lora_bias=True),
        peft.LoraConfig(r=4, lora_alpha=4, target_modules=["q_proj", "v_proj"]),
        peft.LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["k_proj"]),
        peft.LoraConfig(r=4, target_modules=["q_proj"], trainable_token_indices=[3, 4]),
        peft.LoHaConfig(r=4, target_modules=["q_proj"]),
        peft.LoKrConfig(r=4, target_modules=["q_proj"]),
        peft.IA3Config(target_modules=["k_proj"], feedforward_modules=[]),
        peft.VeraConfig(r=4, target_modules=["q_proj"]),
        peft.OFTConfig(oft_block_size=4, target_modules=["q_proj"]),
        peft.VBLoRAConfig(r=4, topk=2, num_vectors=8, vector_length=16, target_modules=["q_proj"]),
    ],
    ids=lambda config: type(config).__name__,
)
def test_every_kind_of_adapter(config: Any) -> None:
    adapted = _adapted(config)
    digest = adapter_digest(adapted)
    assert digest is not None
    assert digest != adapter_digest(_adapted())
    assert digest == adapter_digest(_adapted(config)), "no addresses, no order of a set"
    with adapted.disable_adapter():
        assert fingerprint(adapted) == fingerprint(families.toy_model("llama"))
    trained = next(p for p in adapted.parameters() if p.requires_grad)
    trained.data.view(-1)[0] += 1
    assert adapter_digest(adapted) != digest


def test_only_active_adapters_count_by_content_not_by_name() -> None:
    model = _adapted()
    one = adapter_digest(model)
    torch.manual_seed(5)
    model.add_adapter("second", _lora())
    assert adapter_digest(model) == one
    model.set_adapter("second")
    second = adapter_digest(model)
    assert second not in (one, None)
    other = families.toy_model("llama")
    torch.manual_seed(5)
    assert adapter_digest(peft.get_peft_model(other, _lora(), adapter_name="another")) == second


def test_merged_adapters_are_weights() -> None:
    base, model = families.toy_model("llama"), _adapted()
    model.merge_adapter()
    assert adapter_digest(model) is None
    merged = fingerprint(model)
    assert merged != fingerprint(base)
    assert fingerprint(model.merge_and_unload()) == merged


def test_adapters_that_transformers_loads(tmp_path: Path) -> None:
    _adapted().save_pretrained(tmp_path)
    model = families.toy_model("llama")
    before = fingerprint(model), describe(model)
    model.load_adapter(str(tmp_path))
    assert fingerprint(model) != before[0]
    described = describe(model)
    assert described.pop("adapter") == adapter_digest(_adapted())
    assert described == before[1]
    for module in model.modules():
        if isinstance(module, peft.tuners.tuners_utils.BaseTunerLayer):
            module.enable_adapters(enabled=False)
    assert (fingerprint(model), describe(model)) == before


def test_explain_names_the_adapter(tmp_path: Path) -> None:
    base, adapted = families.toy_model("llama"), _adapted()
    layout = Layout.from_hf_config(base.config)
    tokens = list(range(64))
    with kvstore.open(tmp_path / "kv", disk_bytes="128 MiB", host_bytes="32 MiB") as store:
        weights = fingerprint(base)
        ns = store.namespace(layout, weights=weights, **describe(base))
        ns.put(tokens, [bytes(layout.body_bytes)]).wait()
        other = store.namespace(layout, weights=weights, **describe(adapted))
        assert [field.field for field in other.explain(tokens).differs] == ["adapter"]


def test_prompts_that_are_learned_are_refused() -> None:
    config = peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    model = peft.get_peft_model(families.toy_model("llama"), config)
    with pytest.raises(kvstore.InvalidArgument, match="keys and values of its own"):
        describe(model)
