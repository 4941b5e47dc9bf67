"""The parts of ``--measure`` that need no store: which objects a prompt of a layout is, and the
table of what a store counted when it kept them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from kvstore._core import Layout, keep
from kvstore.footprint.table import Table


@dataclass
class Objects:
    """The objects of one prompt, in the form that a namespace's put takes."""

    tokens: int
    #: One body a block.
    bodies: list[bytes]
    #: Window objects by block.
    windows: dict[int, bytes] = field(default_factory=dict)
    #: Checkpoints by their number of tokens.
    checkpoints: dict[int, bytes] = field(default_factory=dict)

    def logical(self) -> int:
        """Bytes of all objects."""
        parts = [*self.bodies, *self.windows.values(), *self.checkpoints.values()]
        return sum(map(len, parts))


def objects(layout: Layout, tokens: int, *, every: int | None = None) -> Objects:
    """The objects of a prompt of ``tokens`` tokens with bytes that no compressor shrinks: all
    bodies, and the windows and checkpoints that a policy with a point every ``every`` tokens and
    at the prompt's end keeps."""
    if tokens < layout.block_tokens:
        raise ValueError(f"tokens = {tokens} must be a block of {layout.block_tokens} or more")
    blocks = tokens // layout.block_tokens
    _, checkpoints, windows = keep(layout, 0, tokens, tokens, every=every, output_end=False)
    body, window, checkpoint = layout.body_bytes, layout.window_bytes, layout.checkpoint_bytes
    return Objects(
        tokens=blocks * layout.block_tokens,
        bodies=[noise(f"body {block}", body) for block in range(blocks if body else 0)],
        windows={block: noise(f"window {block}", window) for block in windows},
        checkpoints={n: noise(f"checkpoint {n}", checkpoint) for n in checkpoints},
    )


def noise(label: str, length: int) -> bytes:
    """Bytes that look random and are the same for the same label."""
    return hashlib.shake_128(label.encode()).digest(length)


@dataclass(frozen=True)
class Counted:
    """What a store counted after it kept the objects of a layout, in bytes."""

    name: str
    tokens: int
    #: Lengths of the objects.
    logical: int
    #: Slots that hold them.
    slots: int
    #: Descriptors in the slot table.
    table: int
    #: Index entries in memory.
    index: int
    #: Reserved and unused space of segments and tables.
    reserved: int = 0


def rows(counted: Iterable[Counted]) -> Iterator[dict[str, str]]:
    """JSON rows with ``measured_logical`` and ``measured_physical`` per token, exact."""
    for one in counted:
        physical = one.slots + one.table
        yield {
            "name": one.name,
            "measured_logical": str(Fraction(one.logical, one.tokens)),
            "measured_physical": str(Fraction(physical, one.tokens)),
        }


def measured_table(counted: Iterable[Counted]) -> Table:
    """The store's own overhead, itemised and labelled as that."""
    table = Table(
        "measured",
        "Counted in a store (the overhead is the store's, not the architecture's)",
        [
            "name",
            "tokens",
            "logical_per_token",
            "slots_per_token",
            "table_per_token",
            "index_per_token",
            "physical_over_logical",
            "reserved",
        ],
        notes=[
            "Physical: occupied slots and their descriptors. The index is in memory; reserved "
            "space of segments and tables is not divided by tokens.",
        ],
    )
    for one in counted:
        per = one.tokens
        table.add(
            name=one.name,
            tokens=per,
            logical_per_token=Fraction(one.logical, per),
            slots_per_token=Fraction(one.slots, per),
            table_per_token=Fraction(one.table, per),
            index_per_token=Fraction(one.index, per),
            physical_over_logical=Fraction(one.slots + one.table, one.logical),
            reserved=one.reserved,
        )
    return table
