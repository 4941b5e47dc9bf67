"""Which objects a prompt leaves in a store, by policy, and what they take there: the arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kvstore._core import Layout, keep, resume_plan
from kvstore.footprint.chosen import SLOT_UNIT
from kvstore.footprint.costs import DESCRIPTOR
from kvstore.footprint.measured.sizes import Sizes

__all__ = ["CHUNK", "LIMIT", "TAIL", "Keeping", "Kept", "chunk_tokens", "fitting", "policies"]

#: Bytes of one stored cache; a longer prompt is shortened.
LIMIT = 512 << 20
#: Tokens behind the stored ones, with which both processes go on.
TAIL = 8
#: Tokens that a prefill computes at a time, where the windows allow it.
CHUNK = 512
#: Bytes up to which an object is stored bare (FORMAT.md, "Objects in parts"): a quarter of the
#: segments of a store below 4 GiB, which are 16 MiB.
_BARE = 4 << 20
_PART = 4 << 20


@dataclass(frozen=True, slots=True)
class Kept:
    """The objects of a prompt of ``tokens`` tokens, in whole blocks."""

    layout: Layout
    tokens: int
    #: Blocks whose windows are kept, ascending.
    windows: tuple[int, ...]
    #: Checkpoints by their number of tokens, ascending.
    checkpoints: tuple[int, ...]

    def sizes(self) -> Sizes:
        """What they take on disk."""
        layout = self.layout
        bodies = self.tokens // layout.block_tokens if layout.body_bytes else 0
        counts = {
            "body": (bodies, layout.body_bytes),
            "window": (len(self.windows), layout.window_bytes),
            "checkpoint": (len(self.checkpoints), layout.checkpoint_bytes),
        }
        sizes = Sizes()
        for area, (count, length) in counts.items():
            pieces = list(_pieces(layout, area, length))
            manifest = _manifest(len(pieces)) if length > _BARE else 0
            slots = [-(-piece // SLOT_UNIT) * SLOT_UNIT for piece in pieces]
            sizes.add(
                area,
                objects=count,
                logical=count * length,
                manifests=count * manifest,
                slots=count * sum(slots),
                descriptors=count * len(pieces) * DESCRIPTOR,
            )
        return sizes

    def usable(self) -> int:
        """Tokens with which the prompt and its tail go on in a second process."""
        plan = resume_plan(
            self.layout,
            self.tokens + TAIL,
            self.tokens // self.layout.block_tokens,
            windows=set(self.windows),
            checkpoints=set(self.checkpoints),
            allow_approximate=self.approximate(),
        )
        return int(plan.usable)

    def approximate(self) -> bool:
        """Whether nothing but a bounded replay, as the model is deployed, brings the windows."""
        return self.layout.bounded_replay_tokens is not None and not self.windows


def _pieces(layout: Layout, area: str, length: int) -> Iterator[int]:
    """Payload lengths of the slots of one object: one, or those of its parts, which end where
    pages begin if that leaves a part at least half full. Part 0 has the manifest as well."""
    if length <= _BARE:
        yield length
        return
    found = (layout.page(group.name, layer) for group in layout.groups for layer in group.layers)
    cuts = sorted(page[1] for page in found if page is not None and page[0] == area)
    most = _manifest(length // (_PART // 2) + 2)
    lengths: list[int] = []
    at = 0
    while at < length:
        room = _PART if at else _PART - most
        end = min(at + room, length)
        cut = max((cut for cut in cuts if cut <= end), default=0)
        if end < length and cut > at + room // 2:
            end = cut
        lengths.append(end - at)
        at = end
    lengths[0] += _manifest(len(lengths))
    yield from lengths


def _manifest(parts: int) -> int:
    """Bytes of the list of an object's parts."""
    return -(-(16 + 12 * parts) // SLOT_UNIT) * SLOT_UNIT


@dataclass(frozen=True, slots=True)
class Keeping:
    """A policy of `kvstore.torch.Policy`, and what a row calls it."""

    title: str
    every: int | None = None
    #: Whether the end of the prompt is a resume point.
    end: bool = True
    windows: Literal["all", "trailing", "none"] = "trailing"

    def kept(self, layout: Layout, tokens: int) -> Kept:
        """The objects of a prompt of whole blocks."""
        _, checkpoints, windows = keep(
            layout,
            0,
            tokens,
            tokens,
            every=self.every,
            prompt_end=self.end,
            output_end=False,
            windows=self.windows,
        )
        return Kept(
            layout,
            tokens,
            tuple(windows) if layout.window_bytes else (),
            tuple(checkpoints) if layout.checkpoint_bytes else (),
        )


_ENTRIES = Keeping("entries only", end=False, windows="none")
_END = Keeping("prompt end")
_OTHERS = (Keeping("every 1,024", every=1_024), Keeping("all windows", windows="all"))


def _default(layout: Layout) -> Keeping:
    """What `Policy.default` keeps of this layout."""
    return _ENTRIES if layout.bounded_replay_tokens is not None else _END


def fitting(layout: Layout, tokens: int, limit: int = LIMIT) -> int:
    """The longest prompt of whole blocks, at most ``tokens``, whose cache takes at most ``limit``
    bytes with a resume point at its end; one block where even that takes more."""
    block: int = layout.block_tokens
    keeping = _default(layout)
    for length in range(tokens // block * block, block, -block):
        if keeping.kept(layout, length).sizes().logical <= limit:
            return length
    return block


def policies(layout: Layout, tokens: int, limit: int | None = LIMIT) -> list[tuple[Keeping, bool]]:
    """The policies that a prompt is stored under, and which one is the layout's default: those that
    keep different objects, and that fit the limit besides the default."""
    default = _default(layout)
    chosen: list[tuple[Keeping, bool]] = []
    seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    for keeping in (_ENTRIES, _END, *_OTHERS):
        kept = keeping.kept(layout, tokens)
        objects = (kept.windows, kept.checkpoints)
        logical = kept.sizes().logical
        if objects in seen or not logical:
            continue
        if limit is not None and logical > limit and keeping != default:
            continue
        seen.add(objects)
        plain = not layout.window_bytes and not layout.checkpoint_bytes
        chosen.append((keeping, plain or keeping == default))
    return chosen


def chunk_tokens(layout: Layout) -> int:
    """Tokens that a prefill computes at a time: as many as leave the windows of all their blocks in
    a cache that keeps its last ``window - 1`` rows, and at most `CHUNK`."""
    chunk: int = layout.block_tokens
    shortest = min(
        (group.window or 0 for group in layout.groups if group.window), default=CHUNK + 1
    )
    while chunk * 2 <= min(CHUNK, shortest - 1):
        chunk *= 2
    return chunk
