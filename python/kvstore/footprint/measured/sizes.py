"""Bytes on disk by kind of object."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["AREAS", "Sizes"]

AREAS = ("body", "window", "checkpoint")


@dataclass(slots=True)
class Sizes:
    """What objects take on disk, in bytes."""

    #: Objects of each kind; one in parts counts once.
    objects: dict[str, int] = field(default_factory=lambda: dict.fromkeys(AREAS, 0))
    #: Their own bytes by kind.
    areas: dict[str, int] = field(default_factory=lambda: dict.fromkeys(AREAS, 0))
    #: Lists of parts, of objects that are too large for one slot.
    manifests: int = 0
    #: Slots that hold objects and lists.
    slots: int = 0
    #: Descriptors of those slots.
    descriptors: int = 0

    def add(
        self, area: str, *, objects: int, logical: int, manifests: int, slots: int, descriptors: int
    ) -> None:
        """Counts more objects of one kind."""
        self.objects[area] += objects
        self.areas[area] += logical
        self.manifests += manifests
        self.slots += slots
        self.descriptors += descriptors

    @property
    def logical(self) -> int:
        """The objects' own bytes."""
        return sum(self.areas.values())

    @property
    def physical(self) -> int:
        """Slots and descriptors."""
        return self.slots + self.descriptors

    @property
    def rounding(self) -> int:
        """What slots are longer than what they hold."""
        return self.slots - self.manifests - self.logical

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON has them."""
        return asdict(self)
