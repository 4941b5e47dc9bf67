"""What the tables are made of: architectures and their layouts."""

from __future__ import annotations

from kvstore._core import Architecture, Layout

#: Slots are multiples of this many bytes.
SLOT_UNIT = 4096

#: The architecture (None for a layout from elsewhere) and its layout.
Chosen = tuple[Architecture | None, Layout]


def name_of(chosen: Chosen) -> str:
    """What a table calls it: the name under which the registry finds it."""
    architecture, layout = chosen
    name: str = architecture.name if architecture else layout.name
    return name


def slot_bytes(layout: Layout, unit: int = SLOT_UNIT) -> int:
    """Bytes of the slot of one body: its length rounded up to the store's unit."""
    slots: int = -(-layout.body_bytes // unit)
    return slots * unit
