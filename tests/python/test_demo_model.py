"""The demo model: its weights, its arithmetic, and that a restored cache continues bit for bit."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kvstore.models import BLOCK_TOKENS, MlaCache, MlaConfig, MlaDecoder, MlaWeights, demo
from kvstore.models.bf16 import bf16_to_f32, f32_to_bf16
from kvstore.models.demo import corpus
from kvstore.models.safetensors import SafetensorsError, pack_bf16, parse, read

PROMPT_TOKENS = 1000  # 15 full blocks and 40 tokens


@pytest.fixture(scope="module")
def model() -> MlaDecoder:
    return demo.load()


@pytest.fixture(scope="module")
def prompt() -> bytes:
    return demo.prompts(PROMPT_TOKENS, seed=3)[0]


@pytest.fixture(scope="module")
def live(model: MlaDecoder, prompt: bytes) -> tuple[MlaCache, np.ndarray]:
    """The cache of the whole prompt, computed in one run, and all its logits."""
    cache = model.new_cache(2048)
    return cache, model.prefill(prompt, cache)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


# weights


def test_described_as_specified() -> None:
    facts = demo.describe()
    assert 1_700_000 <= int(facts["parameters"]) <= 2_700_000
    assert float(facts["bits_per_byte_4096"]) <= 2.0
    assert facts["positions"] == 8192
    assert facts["body_bytes"] == int(facts["layers"]) * 12_288
    assert facts["cache_bytes_per_token"] == int(facts["layers"]) * 192


def test_all_weights_are_finite() -> None:
    for name, tensor in read(demo.weights_file()).tensors.items():
        assert np.isfinite(tensor).all(), name


def test_numpy_reaches_the_bits_per_byte_of_training(model: MlaDecoder) -> None:
    facts = demo.describe()
    _, held_out = corpus.split(corpus.text())
    if len(held_out) < 8193:
        pytest.skip("this Python has no standard library sources")
    total = 0.0
    for start in range(0, 8192, 4096):
        part = np.frombuffer(held_out[start : start + 4097], np.uint8)
        logits = model.prefill(part[:-1], model.new_cache(4096)).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        total += float(np.log(np.exp(logits).sum(axis=1)).sum())
        total -= float(logits[np.arange(4096), part[1:]].sum())
    bits = total / 8192 / math.log(2)
    if corpus.describe() == facts["corpus"]:
        # The same text in the same windows; what differs is the order of additions.
        assert bits == pytest.approx(float(facts["bits_per_byte_4096_sample"]), abs=0.002)
    else:  # another Python, another 8 KiB, perhaps of text that was trained on; wrong is above 4
        assert 0.5 < bits < float(facts["bits_per_byte_4096"]) + 1.0


# arithmetic


def attend_with_keys_and_values(
    config: MlaConfig, tensors: dict[str, Any], layer: int, x: np.ndarray, cache: MlaCache
) -> np.ndarray:
    """The textbook form in float64: keys and values of all heads made from the cached records.

    Rows x [n, hidden] stand at positions 0 to n-1; the records are the ones that the absorbed form
    has written to the cache.
    """
    c, n = config, len(x)

    def take(name: str) -> np.ndarray:
        weight = tensors[f"model.layers.{layer}.self_attn.{name}.weight"]
        return np.asarray(weight, dtype=np.float64)

    past = cache.read(layer, n).astype(np.float64)
    latent, k_rope = past[:, : c.kv_lora_rank], past[:, c.kv_lora_rank :]
    pairs = c.qk_rope_head_dim // 2
    angle = np.arange(n)[:, None] * c.rope_theta ** (-np.arange(pairs) / pairs)
    cos, sin = np.cos(angle), np.sin(angle)
    query = (x @ take("q_proj").T).reshape(n, c.num_attention_heads, c.qk_head_dim)
    kv = (latent @ take("kv_b_proj").T).reshape(n, c.num_attention_heads, -1)
    heads = []
    for head in range(c.num_attention_heads):
        q_nope, q_rope = np.split(query[:, head], [c.qk_nope_head_dim], axis=1)
        k_nope, value = np.split(kv[:, head], [c.qk_nope_head_dim], axis=1)
        a, b = np.split(q_rope, 2, axis=1)
        q_rope = np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=1)
        scores = (q_nope @ k_nope.T + q_rope @ k_rope.T) / math.sqrt(c.qk_head_dim)
        scores[np.triu_indices(n, 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        heads.append(weights / weights.sum(axis=1, keepdims=True) @ value)
    mixed: np.ndarray = np.concatenate(heads, axis=1) @ take("o_proj").T
    return mixed


def test_absorption_equals_keys_and_values(model: MlaDecoder) -> None:
    tensors = read(demo.weights_file()).tensors
    rows = np.random.default_rng(1).standard_normal((BLOCK_TOKENS, model.config.hidden_size))
    x = rows.astype(np.float32)
    cache = model.new_cache(BLOCK_TOKENS)
    for layer, weights in enumerate(model.weights.layers):
        absorbed = model.attend(x, layer, weights, 0, cache)
        plain = attend_with_keys_and_values(model.config, tensors, layer, x, cache)
        # fp32 with sums of up to 192 terms against float64: 1e-5 of the largest output.
        assert np.abs(absorbed - plain).max() <= 1e-5 * np.abs(plain).max(), layer


def test_decode_agrees_with_prefill(
    model: MlaDecoder, prompt: bytes, live: tuple[MlaCache, np.ndarray]
) -> None:
    _, logits = live
    cache = model.new_cache(1024)
    model.prefill(prompt[:200], cache)
    for position in range(200, 260):
        row = model.decode(prompt[position], cache)
        # Not the same bits: a record that rounds to the neighbouring bf16 moves what follows.
        assert np.abs(row - logits[position]).max() < 0.25
    assert cache.length == 260


def test_bf16_rounds_to_nearest_even() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, -0.0, 3.0e38, 1e-40], dtype=np.float32)
    wide = bf16_to_f32(f32_to_bf16(values))
    assert wide[:4].tolist() == [1.0, 1.0, 1.015625, -0.0]  # ties at 1 + 1/256 and 1 + 3/256
    assert np.abs(wide - values).max() <= 3.0e38 / 256
    every = np.arange(1 << 16, dtype=np.uint16)
    finite = every[np.isfinite(bf16_to_f32(every))]
    assert same_bits(f32_to_bf16(bf16_to_f32(finite)), finite)


# cache and restore


def test_body_is_pages_by_layer_of_records(live: tuple[MlaCache, np.ndarray]) -> None:
    cache, _ = live
    layout = cache.layout
    assert (layout.group, layout.kind, layout.record_bytes) == ("mla", "entries", 192)
    body = cache.body(2)
    assert body.shape == (layout.body_bytes,)
    assert body.flags.c_contiguous
    assert not body.flags.writeable
    assert not body.flags.owndata
    for layer in range(layout.layers):
        page = body[layer * layout.page_bytes : (layer + 1) * layout.page_bytes]
        records = bf16_to_f32(page.view(np.uint16)).reshape(BLOCK_TOKENS, -1)
        assert same_bits(records, cache.read(layer, 3 * BLOCK_TOKENS)[2 * BLOCK_TOKENS :])
    assert same_bits(cache.bodies(1, 4)[1], body)


@pytest.mark.parametrize("blocks", [1, 2, 7, 14, 15])
def test_restored_cache_continues_bit_for_bit(
    model: MlaDecoder, prompt: bytes, live: tuple[MlaCache, np.ndarray], blocks: int
) -> None:
    cache, logits = live
    kept = cache.bodies(0, blocks).tobytes()
    restored = model.new_cache(2048)
    restored.load_bodies(0, np.frombuffer(kept, np.uint8).reshape(blocks, -1))
    start = blocks * BLOCK_TOKENS
    assert restored.length == start
    rows = model.prefill(prompt, restored, start)
    assert same_bits(rows, logits[start:])
    for block in range(PROMPT_TOKENS // BLOCK_TOKENS):
        assert same_bits(restored.body(block), cache.body(block))
    # Decoding writes to the cache: the live one of a fixture is left alone, a second one is made.
    again = model.new_cache(2048)
    model.prefill(prompt, again)
    assert model.generate(rows[-1], restored, 30) == model.generate(logits[-1], again, 30)
    assert same_bits(model.decode(65, restored), model.decode(65, again))


@pytest.mark.parametrize("length", [1, 63, 64, 65, 500, 999])
def test_rows_do_not_depend_on_what_follows(
    model: MlaDecoder, prompt: bytes, live: tuple[MlaCache, np.ndarray], length: int
) -> None:
    _, logits = live
    rows = model.prefill(prompt[:length], model.new_cache(1024))
    assert same_bits(rows, logits[:length])


def test_prefill_over_generated_tokens_gives_the_bytes_of_a_cold_run(
    model: MlaDecoder, prompt: bytes
) -> None:
    cache = model.new_cache(512)
    logits = model.prefill(prompt[:180], cache)
    whole = prompt[:180] + bytes(model.generate(logits[-1], cache, 100))
    model.prefill(whole, cache, start=128)
    cold = model.new_cache(512)
    model.prefill(whole, cold)
    assert same_bits(cache.bodies(0, 4), cold.bodies(0, 4))


def test_one_wrong_bit_shows(
    model: MlaDecoder, prompt: bytes, live: tuple[MlaCache, np.ndarray]
) -> None:
    cache, logits = live
    bodies = cache.bodies(0, 15).copy()
    bodies[3, 1000] ^= 1  # the lowest bit of one bf16 value
    restored = model.new_cache(1024)
    restored.load_bodies(0, bodies)
    assert not same_bits(model.prefill(prompt, restored, 960), logits[960:])


def test_misuse_is_refused(model: MlaDecoder, prompt: bytes) -> None:
    cache = model.new_cache(256)
    with pytest.raises(ValueError, match="multiple of 64"):
        model.prefill(prompt[:200], cache, 64)  # nothing is there to start from
    with pytest.raises(ValueError, match="room for 256"):
        model.prefill(prompt, cache)
    model.prefill(prompt[:200], cache)
    with pytest.raises(ValueError, match="multiple of 64"):
        model.prefill(prompt[:200], cache, 100)
    with pytest.raises(ValueError, match="at least one must be left"):
        model.prefill(prompt[:128], cache, 128)
    with pytest.raises(ValueError, match="ids must be 0 to 255"):
        model.decode(256, cache)
    with pytest.raises(IndexError, match="3 blocks are full"):
        cache.body(3)
    with pytest.raises(ValueError, match="hole"):
        cache.load_bodies(4, cache.bodies(0, 1))
    with pytest.raises(ValueError, match="expected uint8"):
        cache.load_bodies(0, np.zeros((1, 100), np.uint8))
    with pytest.raises(ValueError, match="room for 4"):
        cache.load_bodies(2, np.zeros((3, cache.layout.body_bytes), np.uint8))
    with pytest.raises(ValueError, match="capacity"):
        model.new_cache(8193)


# prompts


def test_prompts_repeat_and_differ() -> None:
    first = demo.prompts(6000, seed=1, count=4)
    assert first == demo.prompts(6000, seed=1, count=4)
    assert [len(text) for text in first] == [6000] * 4
    assert len(set(first)) == 4
    assert first[0] != demo.prompts(6000, seed=2)[0]


def test_prompts_without_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "source_files", list)
    made = demo.prompts(7000, seed=5, count=2)
    assert made == demo.prompts(7000, seed=5, count=2)
    assert [len(text) for text in made] == [7000, 7000]
    assert made[0] != made[1]


# files


def packed(header: Any, payload: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + payload


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_reads_what_safetensors_describes() -> None:
    header = {
        "__metadata__": {"who": "me"},
        "b": entry("BF16", [2], 8, 12),
        "a": entry("F32", [1, 2], 0, 8),
        "none": entry("F32", [0, 3], 12, 12),
    }
    data = np.array([1.5, -2.0], "<f4").tobytes() + np.array([0x3FC0, 0xC000], "<u2").tobytes()
    found = parse(packed(header, data), "x")
    assert found.metadata == {"who": "me"}
    assert found.tensors["a"].tolist() == [[1.5, -2.0]]
    assert found.tensors["b"].tolist() == [1.5, -2.0]
    assert found.tensors["b"].dtype == np.float32
    assert found.tensors["none"].shape == (0, 3)


def test_written_files_read_back() -> None:
    values = np.array([[1.0, -2.5, 1.0e-30]], dtype=np.float32)
    data = pack_bf16({"b": values, "a": values[0, :1]}, {"é": "ü"})
    found = parse(data, "x")
    assert found.metadata == {"é": "ü"}
    assert found.tensors["a"].tolist() == [1.0]
    assert same_bits(found.tensors["b"], bf16_to_f32(f32_to_bf16(values)))
    assert int.from_bytes(data[:8], "little") % 8 == 0
    theirs = pytest.importorskip("safetensors").deserialize(data)
    assert [(name, entry["dtype"], entry["shape"]) for name, entry in sorted(theirs)] == [
        ("a", "BF16", [1]),
        ("b", "BF16", [1, 3]),
    ]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x10\x00", "too short for the header length"),
        (packed({"a": entry("F32", [1], 0, 4)}, b"....")[:20], "cut short"),
        (b"\xff" * 16, "header length"),
        (packed(b"{nonsense"), "header: "),
        (packed(b"[]"), "must be a JSON object"),
        (packed(b'{"a": 1, "a": 2}'), "stands twice"),
        (packed({"a": 1}), "tensor 'a': must have exactly"),
        (packed({"a": entry("F8_E4M3", [1], 0, 1)}, b"."), "tensor 'a': dtype 'F8_E4M3'"),
        (packed({"a": entry("F32", [-1], 0, 4)}, b"...."), "tensor 'a': shape"),
        (packed({"a": entry("F32", [2], 0, 4)}, b"...."), "tensor 'a': F32 .* is 8 bytes"),
        (packed({"a": entry("F32", [1], 0, 4)}, b"..."), "tensor 'a': ends at byte 4"),
        (packed({"a": entry("F32", [1], 4, 8)}, b"." * 8), "tensor 'a': begins at byte 4"),
        (packed({"a": entry("F32", [1], 0, 4)}, b"." * 6), "2 bytes behind the last tensor"),
        (packed({"__metadata__": {"a": 1}}), "__metadata__"),
    ],
)
def test_bad_files_name_the_place(data: bytes, says: str) -> None:
    with pytest.raises(SafetensorsError, match=says) as caught:
        parse(data, "some.safetensors")
    assert str(caught.value).startswith("some.safetensors: ")


def test_every_cut_of_the_weights_is_seen(tmp_path: Path) -> None:
    data = demo.weights_file().read_bytes()
    for length in (0, 7, 8, 100, 5000, len(data) // 2, len(data) - 1):
        path = tmp_path / "weights.safetensors"
        path.write_bytes(data[:length])
        with pytest.raises(SafetensorsError, match=r"^weights\.safetensors: "):
            read(path)


def test_weights_of_another_model_are_refused() -> None:
    config = MlaConfig.read(demo.config_file())
    tensors = read(demo.weights_file()).tensors
    name = "model.layers.1.self_attn.o_proj.weight"
    with pytest.raises(ValueError, match=f"{name!r} is missing"):
        MlaWeights.absorb(config, {k: v for k, v in tensors.items() if k != name})
    with pytest.raises(ValueError, match=f"{name!r}: shape"):
        MlaWeights.absorb(config, {**tensors, name: tensors[name][:, 1:]})
    with pytest.raises(ValueError, match=r"another model: lm_head\.weight"):
        MlaWeights.absorb(config, {**tensors, "lm_head.weight": tensors[name]})


@pytest.mark.parametrize(
    ("field", "value"),
    [("q_lora_rank", 64), ("rope_interleave", True), ("hidden_size", "192"), ("rope_theta", 0)],
)
def test_config_of_another_model_is_refused(tmp_path: Path, field: str, value: Any) -> None:
    fields = json.loads(demo.config_file().read_text("utf-8"))
    fields[field] = value
    path = tmp_path / "config.json"
    path.write_text(json.dumps(fields), "utf-8")
    with pytest.raises(ValueError, match=rf"^config\.json: {field} must be"):
        MlaConfig.read(path)
