"""A prefix is found by the model that stored it and by no other, and explain() says why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")

import kvstore  # noqa: E402
from kvstore.errors import InvalidArgument  # noqa: E402
from kvstore.models.families import REFUSED, configuration, toy, toy_model  # noqa: E402
from kvstore.torch import PrefixCache, Unsupported, fingerprint  # noqa: E402
from torch_caches import opened, prompt  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

IDS = prompt(200)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kvstore.Store]:
    torch.set_num_threads(1)
    with opened(tmp_path / "store") as store, torch.no_grad():
        PrefixCache(store, toy_model("llama")).prefill(IDS)
        yield store


def eager() -> Any:
    model = toy_model("llama")
    model.set_attn_implementation("eager")
    return model


def scaled_rope() -> Any:
    import transformers

    config = toy("llama")
    config.rope_parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0}
    torch.manual_seed(0)
    causal: Any = transformers.AutoModelForCausalLM
    return causal.from_config(config).eval()


def one_value() -> Any:
    model = toy_model("llama")
    with torch.no_grad():
        next(model.parameters())[3, 5] += 1e-3
    return model


def other_type() -> Any:
    return toy_model("llama", "bfloat16")


def adapted() -> Any:
    peft = pytest.importorskip("peft", reason="needs peft")
    lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return peft.get_peft_model(toy_model("llama"), lora).eval()


def test_the_same_model_hits(store: kvstore.Store) -> None:
    assert PrefixCache(store, toy_model("llama")).restore(IDS)[1] == 192


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (eager, "extra.attention"),
        (scaled_rope, "extra.rope"),
        (one_value, "weights"),
        (other_type, "dtype"),
        (adapted, "adapter"),
    ],
)
def test_another_model_misses(store: kvstore.Store, made: Callable[[], Any], field: str) -> None:
    prefix = PrefixCache(store, made())
    cache, usable = prefix.restore(IDS)
    assert usable == 0
    assert prefix.binding.length(cache) == 0
    explained = prefix.explain(IDS)
    assert explained.reason == "absent"
    assert any(difference.field.startswith(field) for difference in explained.differs)
    assert field in str(explained)


@pytest.mark.parametrize("kind", ["hub", "cached"])
def test_changed_files_miss(store: kvstore.Store, kind: Any, tmp_path: Path) -> None:
    """Fingerprints of files: one value changed in a file of the same size is another model."""
    found = []
    for name, model in (("a", toy_model("llama")), ("b", one_value()), ("a", toy_model("llama"))):
        folder = saved_as_on_the_hub(model, tmp_path / "hub" / name)
        weights = fingerprint(folder, kind, remember=tmp_path / "weights.json")
        prefix = PrefixCache(store, model, weights=weights)
        found.append(prefix.restore(IDS)[1])
        prefix.prefill(IDS)
    assert found == [0, 0, 192]


def saved_as_on_the_hub(model: Any, folder: Path) -> Path:
    """A snapshot as the Hugging Face cache keeps it: links to files named by their SHA-256."""
    import hashlib

    snapshot, blobs = folder / "snapshots" / "main", folder / "blobs"
    if snapshot.exists():
        return snapshot
    model.save_pretrained(folder / "plain")
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for file in (folder / "plain").iterdir():
        blob = blobs / hashlib.sha256(file.read_bytes()).hexdigest()
        file.rename(blob)
        (snapshot / file.name).symlink_to(Path("../../blobs") / blob.name)
    return snapshot


def test_an_adapter_restores_its_own_prefix(store: kvstore.Store) -> None:
    torch.manual_seed(4)
    model = adapted()
    prefix = PrefixCache(store, model)
    want = model.generate(input_ids=IDS, max_new_tokens=8, do_sample=False, eos_token_id=None)
    for usable in (0, 192):
        with prefix.session(IDS) as session:
            assert session.plan.usable == usable
            got = model.generate(
                input_ids=IDS,
                max_new_tokens=8,
                do_sample=False,
                eos_token_id=None,
                **session.kwargs,
            )
        assert torch.equal(got, want)


@pytest.mark.parametrize("change", ["weights", "attention", "adapter"])
def test_a_model_that_changes_is_noticed(store: kvstore.Store, change: str) -> None:
    model = adapted() if change == "adapter" else toy_model("llama")
    prefix = PrefixCache(store, model)
    prefix.prefill(IDS)
    if change == "weights":
        next(model.parameters()).mul_(1.5)
    elif change == "attention":
        model.set_attn_implementation("eager")
    else:
        model.base_model.disable_adapter_layers()
    for call in (lambda: prefix.restore(IDS), lambda: prefix.prefill(IDS)):
        with pytest.raises(InvalidArgument, match="make a new one"):
            call()


def test_tenants_do_not_share(store: kvstore.Store) -> None:
    model = toy_model("llama")
    assert PrefixCache(store, model, cache_salt="somebody").restore(IDS)[1] == 0


def test_a_whole_prompt_is_never_restored(store: kvstore.Store) -> None:
    prefix = PrefixCache(store, toy_model("llama"))
    assert prefix.restore(IDS[:, :192])[1] == 128
    cache, _ = prefix.restore(IDS)
    with pytest.raises(InvalidArgument, match="input_ids has 100 tokens, the cache holds 192"):
        prefix.save(IDS[:, :100], cache)


@pytest.mark.parametrize("family", REFUSED)
def test_refused_families_say_why(store: kvstore.Store, family: str) -> None:
    from kvstore.torch.binding import bind

    # Enough of a model to be refused: some of these need kernels that are not here.
    bare = torch.nn.Linear(1, 1)
    bare.config = configuration(family, {}, {})
    with pytest.raises(Unsupported, match=f"{family}: {REFUSED[family][:20]}"):
        bind(bare)


@pytest.mark.parametrize(
    ("ids", "what"),
    [
        (torch.zeros(2, 5, dtype=torch.int64), r"int64 of shape \(2, 5\)"),
        (torch.zeros(5), r"float32 of shape \(5,\)"),
        ([], r"shape \(0,\)"),
    ],
)
def test_wrong_token_ids(store: kvstore.Store, ids: Any, what: str) -> None:
    prefix = PrefixCache(store, toy_model("llama"))
    with pytest.raises(InvalidArgument, match=what):
        prefix.restore(ids)


def test_wrong_sizes(store: kvstore.Store) -> None:
    model = toy_model("llama")
    with pytest.raises(InvalidArgument, match="chunk_tokens = 100 must be a multiple of 64"):
        PrefixCache(store, model, chunk_tokens=100)
    prefix = PrefixCache(store, model, block_tokens=16)
    prefix.prefill(IDS)
    assert prefix.restore(IDS)[1] == 192
    assert prefix.restore(IDS[:, :40])[1] == 32
