"""``--measure`` without the store: which objects a prompt of a layout is, and the table of what a
store counted when it kept them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from kvstore._core import Layout, keep
from kvstore.footprint.table import Table


@dataclass(frozen=True)
class Objects:
    """The objects of one prompt. Their bytes are made when they are asked for."""

    layout: Layout
    #: Bodies, one a block; 0 in a layout without entries.
    bodies: int
    #: Blocks whose window objects are kept, ascending.
    windows: Sequence[int]
    #: Checkpoints by their number of tokens, ascending.
    checkpoints: Sequence[int]
    #: Tokens of all blocks.
    tokens: int
    #: Where the prompt can go on, in tokens, ascending; the last is the end of the last block.
    points: Sequence[int]

    def items(self) -> Iterator[tuple[str, int]]:
        """What the objects are: ("body", block), ("window", block) and ("checkpoint", tokens)."""
        yield from (("body", block) for block in range(self.bodies))
        yield from (("window", block) for block in self.windows)
        yield from (("checkpoint", tokens) for tokens in self.checkpoints)

    def bytes_of(self, area: str, at: int) -> bytes:
        """The bytes of one of the items: they look random, and are the same each time."""
        lengths = {
            "body": self.layout.body_bytes,
            "window": self.layout.window_bytes,
            "checkpoint": self.layout.checkpoint_bytes,
        }
        return hashlib.shake_128(f"{area} {at}".encode()).digest(lengths[area])

    def parts(self) -> dict[str, int]:
        """Bytes by kind of object: the arithmetic that a store is held against."""
        layout = self.layout
        return {
            "bodies": self.bodies * layout.body_bytes,
            "windows": len(self.windows) * layout.window_bytes,
            "checkpoints": len(self.checkpoints) * layout.checkpoint_bytes,
        }

    def logical(self) -> int:
        """Bytes of all objects."""
        return sum(self.parts().values())


def objects(layout: Layout, tokens: int, *, every: int | None = None) -> Objects:
    """The objects of a prompt of ``tokens`` tokens, in whole blocks: all bodies, and the windows
    and checkpoints that a policy with a point every ``every`` tokens and at the prompt's end keeps.
    A model that is made for a bounded replay keeps neither, as it is deployed."""
    block = layout.block_tokens
    if tokens < block:
        raise ValueError(f"tokens = {tokens} must be a block of {block} or more")
    end = tokens // block * block
    points: list[int] = []
    checkpoints: list[int] = []
    windows: list[int] = []
    if layout.bounded_replay_tokens is None:
        points, checkpoints, windows = keep(layout, 0, end, end, every=every, output_end=False)
    return Objects(
        layout,
        bodies=end // block if layout.body_bytes else 0,
        windows=windows,
        checkpoints=checkpoints if layout.checkpoint_bytes else [],
        tokens=end,
        points=points or [end],
    )


@dataclass(frozen=True)
class Counted:
    """What a store counted after it kept the objects of a layout, in bytes."""

    name: str
    tokens: int
    #: Lengths of the objects as they came back.
    logical: int
    #: The same by kind of object, by the arithmetic.
    parts: dict[str, int]
    #: Lists of parts, of objects that are too large for one slot.
    manifests: int
    #: Slots that hold them.
    slots: int
    #: Descriptors in the slot table.
    descriptors: int
    #: The index, in memory.
    index: int
    #: What the store's files take on disk besides: segments' ends, empty slots, tables.
    reserved: int

    def row(self) -> dict[str, str]:
        """The fields of a JSON row: bytes per token, exact."""
        return {
            "measured_logical": str(Fraction(self.logical, self.tokens)),
            "measured_physical": str(Fraction(self.slots + self.descriptors, self.tokens)),
        }


def measured_table(counted: Iterable[Counted]) -> Table:
    """The store's own overhead, itemised and labelled as that."""
    table = Table(
        "measured",
        "Counted in a store (the overhead is the store's, not the architecture's)",
        ["name", "tokens", "part", "bytes", "per_token", "percent_of_logical"],
        notes=[
            "Logical: lengths of the objects, which are the layout's arithmetic. Physical: their "
            "slots and descriptors.",
            "Reserved and unused: what the files take on disk besides (whole segments, tables at "
            "full size); the index is memory. Neither grows with each token.",
        ],
    )
    for one in counted:
        parts = {
            **{kind: size for kind, size in one.parts.items() if size},
            "logical": one.logical,
            "lists of parts": one.manifests,
            "rounding up to slots": one.slots - one.logical - one.manifests,
            "descriptors": one.descriptors,
            "physical": one.slots + one.descriptors,
            "index, in memory": one.index,
            "reserved and unused": one.reserved,
        }
        for part, size in parts.items():
            table.add(
                name=one.name,
                tokens=one.tokens,
                part=part,
                bytes=size,
                per_token=Fraction(size, one.tokens),
                percent_of_logical=Fraction(size, one.logical) * 100,
            )
    return table
