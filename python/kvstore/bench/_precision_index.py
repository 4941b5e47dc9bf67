"""How many of the entries that a sparse indexer picks are still picked with quantised index keys.

The score is DeepSeek's lightning indexer's (arXiv 2512.02556): of an entry with key k, the sum over
heads of weight x ReLU(query . k). The k entries of the highest scores over bf16 keys are the
reference; recall is the share of them among the k highest over quantised keys. Keys (and queries,
where the score itself runs in fewer bits) are quantised as they are, or after the Hadamard rotation
that DeepSeek's kernels apply to both, which leaves the products as they are and spreads outliers.

The other question is the score's own type: `score_rows` rounds it from float32 to bf16 over the
same keys, as DeepSeek-V4 does before it picks.

No trained index keys are at hand: the seeded sets have the structure that is stated with them, the
last is what the demo model's attention really scores, its cached records against its own queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvstore import codec
from kvstore.codec._tensors import from_bf16, to_bf16
from kvstore.models import MlaCache, MlaDecoder, demo
from kvstore.models.mla import rotate
from kvstore.models.mla_weights import LayerWeights

Floats = npt.NDArray[np.float32]

HEADS, DIM = 64, 128
PICKS = (512, 1024, 2048)

#: Formats of an index key: name, preset, bytes of a key with its scales.
FORMATS: list[tuple[str, str | None]] = [
    ("bf16", None),
    ("fp8, fp32 scale", "fp8_e4m3.raw_f32.128"),
    ("fp8, 2^n scale", "fp8_e4m3.pow2_f32.128.amax_floor"),
    ("NVFP4", "nvfp4"),
    ("MXFP4", "fp4.ue8m0.32"),
]


@dataclass(frozen=True, slots=True)
class Scored:
    """Keys [n, dim], queries [queries, heads, dim] and weights [queries, heads], in float32."""

    name: str
    keys: Floats
    queries: Floats
    weights: Floats


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One format of index keys on one set."""

    data: str
    entries: int
    format: str
    rotated: bool
    queries: str
    """`bf16`, or `same`: quantised as the keys are."""
    key_bytes: int
    picks: int
    recall: float
    worst: float
    """The lowest recall of a query."""
    mass: float
    """Score (over bf16 keys, where positive) of what was picked, as a share of the reference's."""


def _normed(x: npt.NDArray[np.float64]) -> Floats:
    """After the LayerNorm that an index key goes through."""
    centred = x - x.mean(axis=-1, keepdims=True)
    normed: Floats = (centred / centred.std(axis=-1, keepdims=True)).astype(np.float32)
    return normed


def normal(rng: np.random.Generator, entries: int, queries: int) -> Scored:
    """Independent normals: nothing stands out, which is the hardest to rank."""
    keys = _normed(rng.standard_normal((entries, DIM)))
    asked = rng.standard_normal((queries, HEADS, DIM)).astype(np.float32)
    weights = rng.standard_normal((queries, HEADS)).astype(np.float32)
    return Scored("normal", keys, asked, weights)


def outliers(rng: np.random.Generator, entries: int, queries: int) -> Scored:
    """The same with four channels of the keys 8 to 20 times as large."""
    scored = normal(rng, entries, queries)
    keys = scored.keys.copy()
    keys[:, rng.choice(DIM, 4, replace=False)] *= rng.uniform(8, 20, 4).astype(np.float32)
    return Scored("outliers", keys, scored.queries, scored.weights)


def topics(rng: np.random.Generator, entries: int, queries: int) -> Scored:
    """Keys around 256 centres of Zipf's frequencies; a query's heads ask for three of them."""
    centres = rng.standard_normal((256, DIM))
    share = 1 / np.arange(1, 257)
    of_key = rng.choice(256, entries, p=share / share.sum())
    keys = _normed(centres[of_key] + 0.7 * rng.standard_normal((entries, DIM)))
    wanted = rng.integers(0, 256, (queries, 3))
    of_head = wanted[np.arange(queries)[:, None], rng.integers(0, 3, (queries, HEADS))]
    asked = centres[of_head] + 0.7 * rng.standard_normal((queries, HEADS, DIM))
    weights = np.abs(rng.standard_normal((queries, HEADS))).astype(np.float32)
    return Scored("topics", keys, asked.astype(np.float32), weights)


SETS: dict[str, Callable[[np.random.Generator, int, int], Scored]] = {
    "normal": normal,
    "outliers": outliers,
    "topics": topics,
}


class _Listening(MlaDecoder):
    """The demo model, which keeps what one layer's queries are made from."""

    def listen(self, layer: int) -> None:
        self.layer, self.heard = layer, dict[int, Floats]()

    def attend(
        self, x: Floats, layer: int, w: LayerWeights, position: int, cache: MlaCache
    ) -> Floats:
        if layer == self.layer:
            self.heard[position] = x.copy()
        return super().attend(x, layer, w, position, cache)


def of_the_demo(text: bytes, layer: int, queries: int) -> Scored:
    """The demo model's own: the records of a layer (latent and rope key, 96 values) after `text`,
    and the absorbed queries of its three heads at the last tokens. Zeros fill up 128."""
    plain = demo.load()
    model = _Listening(plain.config, plain.weights)
    model.listen(layer)
    cache = model.new_cache(len(text))
    model.prefill(text, cache)
    keys = cache.read(layer, len(text))
    last = max(model.heard)
    x, config, weights = model.heard[last], model.config, model.weights.layers[layer]
    rows = (x @ weights.query).reshape(len(x), config.num_attention_heads, config.cache_width)
    asked = rows.transpose(1, 0, 2).copy()
    cos, sin = (table[last : last + len(x)] for table in (model._cos, model._sin))
    rank = config.kv_lora_rank
    asked[..., rank:] = rotate(asked[..., rank:], cos, sin)
    asked = asked.transpose(1, 0, 2)[:queries]
    space = [(0, 0)] * (asked.ndim - 1) + [(0, DIM - config.cache_width)]
    return Scored(
        "demo",
        np.pad(keys, [(0, 0), (0, DIM - config.cache_width)]),
        np.pad(asked, space),
        np.ones(asked.shape[:2], np.float32),
    )


def hadamard(x: Floats) -> Floats:
    """The rows of x times the normalised Hadamard matrix of their width, a power of two."""
    width = x.shape[-1]
    turned = x.astype(np.float32)
    step = 1
    while step < width:
        pairs = turned.reshape(*x.shape[:-1], width // (2 * step), 2, step)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        turned = np.stack([a + b, a - b], axis=-2).reshape(x.shape)
        step *= 2
    return turned * np.float32(width**-0.5)


def _through(x: Floats, preset: str | None) -> Floats:
    """Rows rounded to bf16, and through a preset."""
    words = to_bf16(np.ascontiguousarray(x.reshape(-1, x.shape[-1])))
    if preset is None:
        return from_bf16(words).reshape(x.shape)
    coded = codec.encode(words, preset, dtype="bf16")
    found: Floats = codec.decode(coded, dtype="fp32").reshape(x.shape)
    return found


def key_bytes(preset: str | None) -> int:
    """Bytes of an index key of 128 values."""
    if preset is None:
        return 2 * DIM
    return codec.encode(np.zeros((1, DIM), np.float32), preset).nbytes


def scores(keys: Floats, queries: Floats, weights: Floats) -> Iterator[Floats]:
    """The score of each entry, [n], one query after the other."""
    for asked, weight in zip(queries, weights, strict=True):
        products = keys @ asked.T
        np.maximum(products, 0, out=products)
        yield products @ weight


def measure(scored: Scored) -> Iterator[IndexRow]:
    """Rows of all formats, rotated or not, with queries in bf16 or quantised alike."""
    keys = from_bf16(to_bf16(scored.keys))
    queries = from_bf16(to_bf16(scored.queries))
    reference = list(scores(keys, queries, scored.weights))
    for turn in (False, True):
        turned = (hadamard(keys), hadamard(queries)) if turn else (keys, queries)
        for name, preset in FORMATS:
            if preset is None and not turn:
                continue  # the reference itself
            coded = _through(turned[0], preset)
            for alike in (False, True) if preset else (False,):
                asked = _through(turned[1], preset if alike else None)
                found = scores(coded, asked, scored.weights)
                yield from _rows(scored, (name, preset), turn, alike, reference, found)


def score_rows(scored: Scored) -> Iterator[IndexRow]:
    """Scores rounded to bf16 against float32 ones, over bf16 keys, and over MXFP4 keys and queries
    after the rotation, as V4 has them. Of equal scores the earlier entry is picked."""
    for name, preset in (FORMATS[0], FORMATS[-1]):
        keys, queries = scored.keys, scored.queries
        if preset:
            keys, queries = hadamard(keys), hadamard(queries)
        wide = list(scores(_through(keys, preset), _through(queries, preset), scored.weights))
        narrow = (from_bf16(to_bf16(score)) for score in wide)
        turned = preset is not None
        yield from _rows(scored, (name, preset), turned, turned, wide, narrow)


def _rows(
    scored: Scored,
    format: tuple[str, str | None],
    turn: bool,
    alike: bool,
    reference: list[Floats],
    found: Iterator[Floats],
) -> Iterator[IndexRow]:
    name, preset = format
    pairs = list(zip(reference, found, strict=True))
    for picks in PICKS:
        results = [_recall(want, have, picks) for want, have in pairs]
        recall, mass = (np.array(column) for column in zip(*results, strict=True))
        yield IndexRow(
            scored.name,
            len(scored.keys),
            name,
            turn,
            "same" if alike else "bf16",
            key_bytes(preset),
            picks,
            float(recall.mean()),
            float(recall.min()),
            float(mass.mean()),
        )


def _recall(reference: Floats, found: Floats, picks: int) -> tuple[float, float]:
    """Recall and share of the score of the `picks` highest."""
    want, have = (np.argsort(-score, kind="stable")[:picks] for score in (reference, found))
    kept = np.intersect1d(want, have).size / picks
    score = np.maximum(reference, 0)
    return kept, float(score[have].sum() / score[want].sum())
