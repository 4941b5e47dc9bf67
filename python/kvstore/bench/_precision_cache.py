"""What the demo model loses when its cached prefix is stored in fewer bits.

A prefix of held-out text is computed once, in bf16. Its bodies are encoded and decoded again by the
codec's presets, latent and rope key each by its own, as engines do; then the text that follows is
computed over them (teacher forcing), and its probabilities are compared with those over the bf16
prefix. The cache of the following text itself stays bf16: it is what a store gives back that is
tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kvstore import codec
from kvstore.models import BLOCK_TOKENS, MlaCache, MlaDecoder, demo
from kvstore.models.bf16 import bf16_to_f32
from kvstore.models.demo import corpus

Words = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Scheme:
    """How the latent and the rope key of a token are stored; None is bf16."""

    name: str
    latent: str | None
    rope: str | None
    note: str = ""
    static: str = ""
    """The rule of a scale that is given: `one`, or `amax` of the layer's prefix."""


def _both(name: str, preset: str, note: str, static: str = "", rope: str = "") -> list[Scheme]:
    return [
        Scheme(name, preset, None, note, static),
        Scheme(f"{name}, rope too", preset, rope or preset, "", static),
    ]


#: The unquantised cache first: all others are compared with it.
SCHEMES: list[Scheme] = [
    Scheme("bf16", None, None, "as computed"),
    *_both("fp8 scale 1", "fp8_e4m3.static", "vLLM's default: one scale of 1", "one"),
    *_both("fp8 per tensor", "fp8_e4m3.static", "amax/448 of each layer", "amax"),
    *_both("fp8 fp32 scale", "fp8_e4m3.per_token_head", "one fp32 scale per row"),
    *_both(
        "fp8 2^n per 64",
        "fp8_e4m3.ue8m0.64",
        "the rule of V4's records",
        rope="fp8_e4m3.ue8m0.32",
    ),
    *_both("fp8 2^n per 32", "mxfp8_e4m3.rceil", "MXFP8, scale rounded up"),
    *_both("int8", "int8.per_token_head", "one fp32 scale per row, rounded to nearest"),
    *_both("int8 truncated", "int8.per_token_head.vllm", "vLLM's kernel: truncates"),
    *_both("NVFP4", "nvfp4", "e4m3 scale per 16"),
    *_both("NVFP4 4/6", "nvfp4.4over6", "amax/4 where that is nearer"),
    *_both("MXFP4 floor", "mxfp4.floor", "OCP rule: 2^n per 32, rounded down"),
    *_both("MXFP4 rceil", "mxfp4.rceil", "2^n per 32, rounded up: no overflow"),
]


@dataclass(frozen=True, slots=True)
class CacheRow:
    """One scheme on the held-out text."""

    scheme: str
    latent: str
    rope: str
    bytes_per_token: float
    bits_per_element: float
    bits_per_byte: float
    """Cross-entropy of the following text."""
    added: float
    """Bits per byte above bf16, and its standard error over the windows."""
    added_error: float
    divergence: float
    """Mean KL divergence from the probabilities over bf16, in bits per byte."""
    top1: float
    """Share of bytes whose likeliest prediction is bf16's."""
    note: str


def windows(count: int, prefix: int, following: int) -> list[bytes]:
    """Pieces of the held-out text, evenly spread. ValueError says how many there are.

    Held out is the end of this Python's standard library; the weights' metadata name the Python
    that they were trained on, and with another one some of the text may have been seen.
    """
    _, text = corpus.split(corpus.text())
    size = prefix + following
    fit = len(text) // size
    if count > fit:
        raise ValueError(
            f"--windows {count}: the held-out text ({len(text):,} bytes of this Python's standard "
            f"library) has {fit} pieces of {size:,} bytes"
        )
    starts = [i * (len(text) - size) // max(count - 1, 1) for i in range(count)]
    return [text[start : start + size] for start in starts]


def measure(count: int, prefix: int, following: int, tell: Callable[[str], None]) -> list[CacheRow]:
    """Rows of all schemes, over `count` windows of `prefix` and `following` tokens (bytes).

    ValueError for a prefix that is not of whole blocks, or windows that the model has no positions
    or the held-out text no bytes for.
    """
    model = demo.load()
    positions = model.config.max_position_embeddings
    if prefix < BLOCK_TOKENS or prefix % BLOCK_TOKENS or following < 1:
        raise ValueError(
            f"--prefix {prefix}, --following {following}: whole blocks of {BLOCK_TOKENS} and at "
            "least one token wanted"
        )
    if prefix + following > positions:
        raise ValueError(f"--prefix + --following: {prefix + following}, the model has {positions}")
    found: list[list[tuple[float, float, float]]] = [[] for _ in SCHEMES]
    sizes = [0.0] * len(SCHEMES)
    for number, text in enumerate(windows(count, prefix, following)):
        reference: Floats | None = None
        bodies = _prefix(model, text[:prefix])
        for index, scheme in enumerate(SCHEMES):
            stored, sizes[index] = through(scheme, bodies, model)
            logs = _following(model, text, prefix, stored)
            reference = logs if reference is None else reference
            found[index].append(_compare(logs, reference, text[prefix:]))
        tell(f"window {number + 1} of {count}")
    return [_row(s, size, f, found[0], model) for s, size, f in _zip(SCHEMES, sizes, found)]


def _zip(*lists: Any) -> Iterator[Any]:
    return zip(*lists, strict=True)


def _prefix(model: MlaDecoder, text: bytes) -> Words:
    """The prefix's cache, bf16 bits [blocks, layers, 64, latent + rope]."""
    cache = model.new_cache(len(text))
    model.prefill(text, cache)
    blocks = len(text) // BLOCK_TOKENS
    bodies: Words = cache.bodies(0, blocks).view(np.uint16)
    shape = (blocks, model.config.num_hidden_layers, BLOCK_TOKENS, model.config.cache_width)
    return bodies.reshape(shape)


def through(scheme: Scheme, bodies: Words, model: MlaDecoder) -> tuple[Words, float]:
    """The bodies after they were stored in a scheme, and the bytes of one token there."""
    rank, size = model.config.kv_lora_rank, 0.0
    stored = bodies.copy()
    tokens = bodies.shape[0] * bodies.shape[2]
    for layer in range(bodies.shape[1]):
        rows = bodies[:, layer].reshape(tokens, -1)
        for part, preset in ((slice(0, rank), scheme.latent), (slice(rank, None), scheme.rope)):
            words = np.ascontiguousarray(rows[:, part])
            back, used = _coded(words, preset, scheme.static)
            stored[:, layer, :, part] = back.reshape(*stored[:, layer, :, part].shape)
            size += used / tokens
    return stored, size


def _coded(words: Words, preset: str | None, static: str) -> tuple[Words, int]:
    """Rows after encoding and decoding, and the bytes of codes and scales."""
    if preset is None:
        return words, words.nbytes
    given: dict[str, Any] = {}
    if static:
        amax = float(np.abs(bf16_to_f32(words)).max())
        given["scale"] = 1.0 if static == "one" else amax / 448
    coded = codec.encode(words, preset, dtype="bf16", **given)
    back: Words = np.empty_like(words)
    codec.decode(coded, out=back)
    return back, coded.nbytes


def _following(model: MlaDecoder, text: bytes, prefix: int, stored: Words) -> Floats:
    """log2 of the probabilities of what follows the prefix: [tokens, vocab]."""
    cache: MlaCache = model.new_cache(len(text))
    cache.load_bodies(0, stored.reshape(len(stored), -1).view(np.uint8))
    logits = model.prefill(text, cache, prefix)[:-1]
    shifted = logits - logits.max(axis=1, keepdims=True)
    logs: Floats = (shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))) / math.log(2)
    return logs


def _compare(logs: Floats, reference: Floats, text: bytes) -> tuple[float, float, float]:
    """Bits per byte, divergence from the reference and share of equal first choices."""
    following = np.frombuffer(text, np.uint8)[1:]
    bits = -float(logs[np.arange(len(following)), following].mean())
    divergence = float((np.exp2(reference) * (reference - logs)).sum(axis=1).mean())
    top1 = float((logs.argmax(axis=1) == reference.argmax(axis=1)).mean())
    return bits, divergence, top1


def _row(
    scheme: Scheme,
    size: float,
    found: list[tuple[float, float, float]],
    reference: list[tuple[float, float, float]],
    model: MlaDecoder,
) -> CacheRow:
    bits, divergence, top1 = (np.array(column) for column in _zip(*found))
    added = bits - np.array([row[0] for row in reference])
    error = float(added.std(ddof=1) / math.sqrt(len(added))) if len(added) > 1 else 0.0
    elements = model.config.num_hidden_layers * model.config.cache_width
    return CacheRow(
        scheme.name,
        scheme.latent or "bf16",
        scheme.rope or "bf16",
        size,
        size * 8 / elements,
        float(bits.mean()),
        float(added.mean()),
        error,
        float(divergence.mean()),
        float(top1.mean()),
        scheme.note,
    )
