"""Quantised caches, kept as a whole: restored ones continue with the bits of live ones."""

from __future__ import annotations

import importlib.util
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")

import kvstore  # noqa: E402
from kvstore.errors import InvalidArgument  # noqa: E402
from kvstore.models.families import toy_model  # noqa: E402
from kvstore.torch import Policy, PrefixCache, QuantizedPrefixCache, Unsupported  # noqa: E402
from kvstore.torch.serial import encode  # noqa: E402
from torch_caches import continued, opened, prompt  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

CUTS = [1, 63, 64, 65, 127, 128, 129, 200, 257, 300]
#: Points at every block end, and those alone.
EVERY_BLOCK = Policy(every=1, prompt_end=False, output_end=False)
QUIET: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": None}

_NEEDS_HQQ = pytest.mark.skipif(
    importlib.util.find_spec("hqq") is None, reason="needs the package hqq"
)
_NEEDS_QUANTO = pytest.mark.skipif(
    importlib.util.find_spec("optimum") is None
    or importlib.util.find_spec("optimum.quanto") is None
    or not all(map(shutil.which, ("ninja", "g++"))),
    reason="needs the package optimum-quanto, ninja and g++",
)
#: Families, backends and settings. The groups of the integer ones do not divide MLA's rope keys.
KINDS = [
    pytest.param("llama", {"backend": "fp8"}, id="llama-fp8"),
    pytest.param("deepseek_v3", {"backend": "fp8"}, id="deepseek_v3-fp8"),
    pytest.param("llama", {"backend": "hqq"}, id="llama-hqq", marks=_NEEDS_HQQ),
    pytest.param(
        "llama",
        {"backend": "hqq", "nbits": 8, "axis_key": 1, "axis_value": 1, "residual_length": 32},
        id="llama-hqq-8",
        marks=_NEEDS_HQQ,
    ),
    pytest.param("llama", {"backend": "quanto"}, id="llama-quanto", marks=_NEEDS_QUANTO),
    pytest.param(
        "llama",
        {"backend": "quanto", "nbits": 2, "q_group_size": 32, "residual_length": 32},
        id="llama-quanto-2",
        marks=_NEEDS_QUANTO,
    ),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kvstore.Store]:
    torch.set_num_threads(1)
    with opened(tmp_path) as store, torch.no_grad():
        yield store


def whole(prefix: QuantizedPrefixCache, cache: Any) -> Any:
    """All bytes of a cache."""
    return encode(prefix.binding.snapshot(cache))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("family", "settings"), KINDS)
def test_restored_at_every_cut(
    store: kvstore.Store, family: str, settings: dict[str, Any], dtype: str
) -> None:
    model = toy_model(family, dtype, seed=1)
    prefix = QuantizedPrefixCache(store, model, policy=EVERY_BLOCK, **settings)
    ids = prompt(300 + 129 + 3)
    prefix.prefill(ids[:, :300])
    for n in CUTS:
        cache, usable = prefix.restore(ids[:, :n])
        assert usable == (n - 1) // 64 * 64
        assert type(cache) is transformers.QuantizedCache
        assert prefix.binding.length(cache) == usable
        got = continued(prefix.binding, cache, ids, usable, n)
        want = continued(prefix.binding, live(prefix, ids, usable), ids, usable, n)
        assert torch.equal(got, want), f"cut {n}"


@pytest.mark.parametrize(("family", "settings"), KINDS)
def test_a_restored_cache_is_all_of_the_live_one(
    store: kvstore.Store, family: str, settings: dict[str, Any]
) -> None:
    prefix = QuantizedPrefixCache(store, toy_model(family, "bfloat16", seed=1), **settings)
    ids = prompt(193)
    kept, _ = prefix.prefill(ids[:, :192])
    cache, usable = prefix.restore(ids)
    assert usable == 192
    assert torch.equal(whole(prefix, cache), whole(prefix, kept))
    for restored, layer in zip(cache.layers, kept.layers, strict=True):
        assert type(restored) is type(layer)
        assert vars(restored).keys() == vars(layer).keys()


def live(prefix: QuantizedPrefixCache, ids: Any, length: int) -> Any:
    """A live cache of ``length`` tokens that was prefilled block by block: the chunks decide the
    scales. (Made anew each time: quanto's tensors cannot be copied.)"""
    cache = prefix.binding.new_cache()
    for start in range(0, length, 64):
        prefix.binding.forward(ids[:, start : start + 64], cache, start)
    return cache


def live_turn(prefix: QuantizedPrefixCache, cache: Any, at: int, out: Any, prompted: int) -> int:
    """Lets a live cache of ``at`` tokens go through the calls of a session and of generate, up to
    the last block end at which an output token was fed; the tokens that it holds then."""
    fed: int = out.shape[1] - 1  # the last token was never an input
    begun = (prompted - 1) // 64 * 64
    steps = [*range(at, begun, 64), begun, *range(prompted, fed)]
    for start, end in itertools.pairwise([*steps, fed]):
        if end > max(begun, fed // 64 * 64):
            return int(start)
        prefix.binding.forward(out[:, start:end], cache, start)
    return fed


@pytest.mark.parametrize(("family", "settings"), KINDS)
def test_turns_with_a_restart(tmp_path: Path, family: str, settings: dict[str, Any]) -> None:
    """Each turn goes on from all that was stored before, and what it restores has the bits of a
    live cache that went through the same calls."""
    torch.set_num_threads(1)
    model = toy_model(family, "float32", seed=1)
    ids, kept, at = prompt(150), None, 0
    for turns in (range(4), range(4, 8)):  # the store is opened again between
        with opened(tmp_path) as store, torch.no_grad():
            prefix = QuantizedPrefixCache(store, model, **settings)
            kept = kept or prefix.binding.new_cache()
            for turn in turns:
                cache, usable = prefix.restore(ids)
                assert usable == at, f"turn {turn}"
                assert torch.equal(whole(prefix, cache), whole(prefix, kept)), f"turn {turn}"
                with prefix.session(ids) as session:
                    new = {"max_new_tokens": 40, "do_sample": False}
                    out = model.generate(ids, **new, **QUIET, **session.kwargs)
                assert session.saved.wait(30)
                assert session.saved.count("rejected") == 0
                assert session.saved.skipped == {}
                at = live_turn(prefix, kept, at, out, ids.shape[1])
                assert at == (out.shape[1] - 1) // 64 * 64
                ids = torch.cat([out, prompt(21, seed=turn)], dim=1)


@pytest.mark.parametrize(("family", "settings"), KINDS)
@pytest.mark.parametrize(
    "options", [{"max_new_tokens": 140}, {"max_new_tokens": 40, "num_beams": 3}]
)
def test_generate_goes_on_as_the_live_cache_does(
    store: kvstore.Store, family: str, settings: dict[str, Any], options: dict[str, Any]
) -> None:
    model = toy_model(family, "float32", seed=1)
    prefix = QuantizedPrefixCache(store, model, **settings)
    ids = prompt(200)
    new = {"do_sample": False} | QUIET | options
    got = [prefix.generate(ids, **new) for _ in range(2)]
    assert prefix.restore(ids)[1] == 192
    cache = live(prefix, ids, 192)
    if "num_beams" in options:
        cache.reorder_cache(torch.zeros(3, dtype=torch.int64))
    want = model.generate(ids, cache=cache, **new)
    assert torch.equal(got[0], want)
    assert torch.equal(got[1], want)
    if (
        "num_beams" not in options
    ):  # the output's end is a resume point, and the prompt's end is one no less
        assert prefix.restore(want)[1] == 320
    assert prefix.restore(torch.cat([ids, prompt(90, seed=3)], dim=1))[1] == 192


def test_points_are_those_of_the_policy(store: kvstore.Store) -> None:
    model = toy_model("llama", "float32", seed=1)
    prefix = QuantizedPrefixCache(store, model, policy=Policy(every=128))
    ids = prompt(500)
    with prefix.session(ids) as session:
        pass
    # Points at 128, 256 and 384 and at the end: one whole cache and one mark each.
    assert session.saved.count("stored") == 2 * 4
    stored = [n for n in range(64, 500, 64) if prefix.restore(ids[:, : n + 1])[1] == n]
    assert stored == [128, 256, 384, 448]


def test_a_cache_that_was_filled_elsewhere_is_saved(store: kvstore.Store) -> None:
    model = toy_model("llama", "float32", seed=1)
    prefix = QuantizedPrefixCache(store, model)
    ids = prompt(193)
    cache = live(prefix, ids, 192)
    assert prefix.save(ids[:, :192], cache).count("stored") == 2
    assert prefix.restore(ids)[1] == 192
    prefix.binding.forward(ids[:, 192:], cache, 192)
    assert list(prefix.save(ids, cache).skipped) == [192]
    dynamic = transformers.DynamicCache(config=model.config)
    with pytest.raises(InvalidArgument, match="DynamicCache given, a QuantizedCache"):
        prefix.binding.snapshot(dynamic)


@pytest.mark.parametrize("change", ["no whole cache", "other bytes", "of fewer tokens", "cut"])
def test_what_cannot_be_read_is_a_miss(store: kvstore.Store, change: str) -> None:
    """The resume point before it is used, and the prompt goes on with the right bits."""
    model = toy_model("llama", "float32", seed=1)
    prefix = QuantizedPrefixCache(store, model, policy=EVERY_BLOCK)
    ids = prompt(193 + 129 + 3)
    prefix.save(ids[:, :128], live(prefix, ids, 128))
    stored = whole(prefix, live(prefix, ids, 128 if change == "of fewer tokens" else 192)).numpy()
    if change == "other bytes":
        stored[stored.size // 2] ^= 1
    if change == "cut":
        stored = stored[:-64]
    tokens = ids[0, :192].numpy()
    if change != "no whole cache":
        key = prefix.namespace.keys(tokens)[-32:]
        assert prefix.namespace.keyed.put([key], [stored]).status.accepted
    assert prefix.namespace.put(tokens, None, checkpoints={192: b"whole"}).status.accepted
    assert prefix.explain(ids[:, :193]).usable == 192
    cache, usable = prefix.restore(ids[:, :193])
    assert usable == 128
    got = continued(prefix.binding, cache, ids, 128, 193)
    assert torch.equal(got, continued(prefix.binding, live(prefix, ids, 128), ids, 128, 193))
    cache, _ = prefix.prefill(ids[:, :193])
    assert prefix.binding.length(cache) == 193
    # A whole cache that was evicted is there again.
    assert prefix.restore(ids[:, :193])[1] == (192 if change == "no whole cache" else 128)


def test_a_whole_cache_that_finds_no_room_is_no_resume_point(store: kvstore.Store) -> None:
    prefix = QuantizedPrefixCache(store, toy_model("llama", "float32", seed=1))
    ids = prompt(193)
    larger = torch.zeros(80 << 20, dtype=torch.uint8)  # than the host memory of the store
    [refused] = prefix.put_whole(ids[0, :192].numpy(), larger, 0, None)
    assert refused.status.count("rejected") == 1
    assert prefix.explain(ids).usable == 0


OTHER_SETTINGS = [
    ({"backend": "fp8"}, {"backend": "fp8", "chunk_tokens": 128}, {"extra.chunk_tokens"}),
    pytest.param(
        {"backend": "hqq"},
        {"backend": "hqq", "nbits": 8},
        {"extra.nbits"},
        marks=_NEEDS_HQQ,
    ),
    pytest.param(
        {"backend": "hqq", "nbits": 4},
        {"backend": "hqq", "q_group_size": 32, "residual_length": 64},
        {"extra.q_group_size", "extra.residual_length"},
        marks=_NEEDS_HQQ,
    ),
    pytest.param(
        {"backend": "fp8"},
        {"backend": "hqq"},
        {"extra.backend"}
        | {
            f"extra.{name}"
            for name in ("nbits", "axis_key", "axis_value", "q_group_size", "residual_length")
        },
        marks=_NEEDS_HQQ,
    ),
]


@pytest.mark.parametrize(("stored", "asked", "fields"), OTHER_SETTINGS)
def test_other_settings_are_a_miss_that_is_explained(
    store: kvstore.Store, stored: dict[str, Any], asked: dict[str, Any], fields: set[str]
) -> None:
    model = toy_model("llama", "float32", seed=1)
    ids = prompt(200)
    QuantizedPrefixCache(store, model, **stored).prefill(ids)
    other = QuantizedPrefixCache(store, model, **asked)
    assert other.restore(ids)[1] == 0
    assert {field.field for field in other.explain(ids).differs} == fields
    assert QuantizedPrefixCache(store, model, **stored).restore(ids)[1] == 192


def test_a_quantised_cache_and_a_plain_one_are_apart(store: kvstore.Store) -> None:
    model = toy_model("llama", "float32", seed=1)
    ids = prompt(200)
    PrefixCache(store, model).prefill(ids)
    prefix = QuantizedPrefixCache(store, model)
    assert prefix.restore(ids)[1] == 0
    differing = {field.field for field in prefix.explain(ids).differs}
    assert differing == {"layout", "extra.backend", "extra.chunk_tokens"}


def test_tenants_and_extra_keys_are_apart(store: kvstore.Store) -> None:
    model = toy_model("llama", "float32", seed=1)
    ids, image = prompt(200), {0: b"a digest of an image", 3: b"another of the tail"}
    one = QuantizedPrefixCache(store, model, cache_salt="one")
    one.prefill(ids, extra_keys=image)
    assert one.restore(ids, extra_keys=image)[1] == 192
    assert one.restore(ids)[1] == 0
    other = QuantizedPrefixCache(store, model, cache_salt="other")
    assert other.restore(ids, extra_keys=image)[1] == 0


def test_the_description_fits_a_namespace(store: kvstore.Store) -> None:
    """The longest one: all settings, a long name and an adapter."""
    model = toy_model("deepseek_v3", "float32", seed=1)
    model.config._name_or_path = "an-organisation/" + "a-model-with-a-long-name-" * 8
    model.config._commit_hash = "0123456789" * 4
    prefix = QuantizedPrefixCache(store, model)
    settings = ("nbits", "axis_key", "axis_value", "q_group_size", "residual_length")
    extra = {"backend": "quanto 0.2.7.post1", "chunk_tokens": "1048576"}
    extra |= dict.fromkeys(settings, "-128")
    assert prefix._namespace(store, None, extra, adapter=bytes(32)).digest


def test_what_is_refused(store: kvstore.Store) -> None:
    llama = toy_model("llama", "float32", seed=1)
    with pytest.raises(InvalidArgument, match="backend = 'int8' must be one of fp8, hqq, quanto"):
        QuantizedPrefixCache(store, llama, backend="int8")
    with pytest.raises(InvalidArgument, match="bits is no setting"):
        QuantizedPrefixCache(store, llama, bits=4)
    with pytest.raises(InvalidArgument, match="does not support"):
        QuantizedPrefixCache(store, llama, backend="fp8", nbits=4)
    with pytest.raises(Unsupported, match="only supported for models with only full attention"):
        QuantizedPrefixCache(store, toy_model("gemma3_text"))
    prefix = QuantizedPrefixCache(store, llama)
    with pytest.raises(Unsupported, match="give the prompts one by one"):
        prefix.generate(prompt(100).repeat(2, 1), max_new_tokens=2)
    for cache in (prefix, PrefixCache(store, llama)):
        with pytest.raises(Unsupported, match=r"'quantized': .*with a QuantizedPrefixCache"):
            cache.generate(prompt(100), cache_implementation="quantized")
