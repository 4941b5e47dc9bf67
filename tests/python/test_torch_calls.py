"""Calls of a model inside a session: what is stored of them is the rows of their tokens, or nothing
more is stored, or they raise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")

import kvstore  # noqa: E402
from kvstore.errors import InvalidArgument  # noqa: E402
from kvstore.models.families import toy_model  # noqa: E402
from kvstore.torch import PrefixCache, Unsupported  # noqa: E402
from torch_caches import honest, opened, prompt  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

QUIET: dict[str, Any] = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
IDS = prompt(400)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kvstore.Store]:
    torch.set_num_threads(1)
    with opened(tmp_path) as store, torch.no_grad():
        yield store


def made(store: kvstore.Store, family: str = "llama") -> tuple[Any, PrefixCache]:
    model = toy_model(family, "float32", seed=1)
    return model, PrefixCache(store, model)


def failing(*_: Any) -> None:
    raise RuntimeError("out of memory")


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "qwen3_next", "mamba2"])
@pytest.mark.parametrize("where", ["in a layer", "behind the layers"])
def test_a_call_that_failed_midway(store: kvstore.Store, family: str, where: str) -> None:
    """Some layers have rows of the call, or all: what follows is not stored under its tokens."""
    model, prefix = made(store, family)
    with prefix.session(IDS[:, :128], prefill=False) as session:
        model(IDS[:, :64], cache=session.cache)
        layers = getattr(model, "backbone", None) or model.model
        place = layers.layers[2] if where == "in a layer" else model.lm_head
        hook = place.register_forward_pre_hook(failing)
        with pytest.raises(RuntimeError, match="out of memory"):
            model(IDS[:, 64:70], cache=session.cache)
        hook.remove()
        with contextlib.suppress(RuntimeError):  # the layers disagree about the number of tokens
            model(IDS[:, 64:192], cache=session.cache)
    assert session.saved.stopped is not None
    assert honest(prefix, IDS[:, :192]) == 64


def test_a_failed_chunk_of_a_session(store: kvstore.Store) -> None:
    model, prefix = made(store)
    with prefix.session(IDS, prefill=False, follow=False) as session:
        session.compute(64)
        hook = model.lm_head.register_forward_pre_hook(failing)
        with pytest.raises(RuntimeError, match="out of memory"):
            session.compute(64)
        hook.remove()
        with pytest.raises(InvalidArgument, match="compute: a call of the model failed midway"):
            session.compute(64)
    assert honest(prefix, IDS) == 64


def test_arguments_by_position(store: kvstore.Store) -> None:
    model, prefix = made(store)
    with prefix.session(IDS[:, :130]) as session:
        model(IDS[:, 128:130], None, None, session.cache)
        assert session.length == 130
        model(IDS[:, 130:300], cache=session.cache)
    assert honest(prefix, IDS[:, :300]) == 256


def test_calls_of_an_inner_module_end_the_recording(store: kvstore.Store) -> None:
    model, prefix = made(store)
    with prefix.session(IDS[:, :130]) as session:
        model.model(prompt(3, seed=5), cache=session.cache)
        model(IDS[:, 128:300], cache=session.cache)
    assert "not those of the model itself" in str(session.saved.stopped)
    assert honest(prefix, IDS[:, :300]) == 128


def test_chunks_computed_by_an_open_session_count_once(store: kvstore.Store) -> None:
    model, prefix = made(store)
    with prefix.session(IDS, prefill=False) as session:
        session.compute(200)
        assert session.length == 200
        model(IDS[:, 200:], cache=session.cache)
    assert honest(prefix, IDS) == 384


def test_a_call_with_another_cache_meanwhile(store: kvstore.Store) -> None:
    """Another thread's call may end before the session's: its end is not the session's."""
    model, prefix = made(store)
    lengths: list[int] = []

    def other(*_: Any) -> None:
        hook.remove()
        model(prompt(10, seed=5))
        lengths.append(session.length)

    with prefix.session(IDS[:, :300]) as session:
        hook = model.model.layers[1].register_forward_pre_hook(other)
        model(IDS[:, 256:300], cache=session.cache)
        model(IDS[:, 300:], cache=session.cache)
    assert lengths == [256]
    assert honest(prefix, IDS) == 384


def test_masks_and_positions_that_change_the_rows(store: kvstore.Store) -> None:
    model, prefix = made(store)
    holes = torch.ones(1, 300, dtype=torch.int64)
    holes[0, 10:100] = 0
    shifted = torch.arange(200, 372).unsqueeze(0)
    with prefix.session(IDS[:, :130]) as session:
        new = IDS[:, 128:300]
        with pytest.raises(InvalidArgument, match=r"attention_mask: of shape \(1, 300\), it hides"):
            model(new, cache=session.cache, attention_mask=holes)
        with pytest.raises(
            InvalidArgument, match=r"position_ids: \[1, 172\] from 200 on given, 172"
        ):
            model(new, cache=session.cache, position_ids=shifted)
        with pytest.raises(InvalidArgument, match="use_cache = False"):
            model(new, cache=session.cache, use_cache=False)
        mask, positions = torch.ones_like(holes), torch.arange(128, 300).unsqueeze(0)
        model(new, cache=session.cache, attention_mask=mask, position_ids=positions)
    assert honest(prefix, IDS[:, :300]) == 256


def test_a_pad_token_in_the_text(store: kvstore.Store) -> None:
    """generate makes a mask of pad tokens by itself; the stored prefix was computed without."""
    model, prefix = made(store)
    ids = IDS.clone()
    ids[0, 50] = 0
    with pytest.raises(InvalidArgument, match="generate hides pad tokens"):
        prefix.generate(ids, max_new_tokens=8, **QUIET)
    mask = torch.ones_like(ids)
    out = prefix.generate(ids, attention_mask=mask, max_new_tokens=8, **QUIET)
    want = model.generate(ids, attention_mask=mask, max_new_tokens=8, **QUIET)
    assert torch.equal(out, want)


def test_a_mask_for_each_pair_of_tokens_ends_the_recording(store: kvstore.Store) -> None:
    model, prefix = made(store)
    with prefix.session(IDS[:, :130]) as session:
        mask = torch.zeros(1, 1, 172, 300)
        mask[..., 10:100] = float("-inf")
        model(IDS[:, 128:300], cache=session.cache, attention_mask=mask)
    assert "mask" in str(session.saved.stopped)
    assert honest(prefix, IDS[:, :300]) == 128


def test_a_longer_prompt_of_repeated_text(store: kvstore.Store) -> None:
    """New tokens that look like the stored ones are new all the same."""
    model, prefix = made(store)
    ids = prompt(64).repeat(1, 6)
    with prefix.session(ids[:, :100]) as session:
        out = model.generate(ids, max_new_tokens=8, **QUIET, **session.kwargs)
    assert torch.equal(out, model.generate(ids, max_new_tokens=8, **QUIET))
    assert honest(prefix, out) == 384


def test_extra_keys_of_blocks_that_end_later(store: kvstore.Store) -> None:
    """A picture may lie behind the first chunk, and in a block that only the output fills."""
    model, prefix = made(store)
    keys = {3: b"picture of 32 bytes, its digest.", 6: b"another picture, in its last row"}
    for usable in (0, 384):
        with prefix.session(IDS, extra_keys=keys) as session:
            assert session.plan.usable == usable
            out = model.generate(IDS, max_new_tokens=60, **QUIET, **session.kwargs)
    assert prefix.restore(out, extra_keys=keys)[1] == 448
    assert prefix.restore(out, extra_keys={3: keys[3]})[1] == 384
    assert prefix.restore(out)[1] == 192


def test_a_store_that_is_closed_meanwhile(store: kvstore.Store) -> None:
    """The output is the caller's all the same; what could not be stored is said."""
    model, prefix = made(store)
    with prefix.session(IDS) as session:
        store.close()
        out = model.generate(IDS, max_new_tokens=60, **QUIET, **session.kwargs)
    assert torch.equal(out, model.generate(IDS, max_new_tokens=60, **QUIET))
    assert "closed" in str(session.saved.stopped)


def test_a_model_that_changes_meanwhile(store: kvstore.Store) -> None:
    model, prefix = made(store)

    def changed() -> None:
        with prefix.session(IDS[:, :130]) as session:
            model.model.layers[0].self_attn.k_proj.weight.mul_(2)
            model(IDS[:, 128:300], cache=session.cache)

    with pytest.raises(InvalidArgument, match="were changed since this PrefixCache was made"):
        changed()
    model.model.layers[0].self_attn.k_proj.weight.div_(2)
    assert honest(PrefixCache(store, model), IDS[:, :300]) == 128


def test_training_mode_is_refused(store: kvstore.Store) -> None:
    model, prefix = made(store)
    model.train()
    with pytest.raises(InvalidArgument, match=r"call model\.eval\(\)"):
        prefix.prefill(IDS)


def test_autocast_to_another_type_is_refused(store: kvstore.Store) -> None:
    """float16 rows have the size of bfloat16 ones."""
    prefix = PrefixCache(store, toy_model("llama", "bfloat16", seed=1))
    with (
        pytest.raises(Unsupported, match=r"torch.bfloat16 wanted"),
        torch.autocast("cpu", dtype=torch.float16),
    ):
        prefix.prefill(IDS)


def test_gradients_change_nothing(store: kvstore.Store) -> None:
    model, prefix = made(store)
    with torch.enable_grad(), prefix.session(IDS[:, :130]) as session:
        model(IDS[:, 128:], cache=session.cache)
    assert honest(prefix, IDS) == 384
