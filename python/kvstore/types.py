"""What the calls take, for type checkers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["SupportsDLPack", "WeightsKind"]


class SupportsDLPack(Protocol):
    """A tensor: on the CPU, for kvstore."""

    def __dlpack__(self) -> Any: ...


WeightsKind: TypeAlias = Literal["full", "hub", "cached", "sampled", "name"]
"""How weights were identified, strongest first; a weaker kind never hits a stronger one."""


class WeightsFingerprint(NamedTuple):
    """A fingerprint of the weights, and how it was made."""

    kind: WeightsKind
    digest: bytes


Bytes: TypeAlias = "Buffer | SupportsDLPack"
Writable: TypeAlias = "Buffer | SupportsDLPack"
TokenIds: TypeAlias = "Buffer | SupportsDLPack | Sequence[int] | None"
Bodies: TypeAlias = "Buffer | SupportsDLPack | Sequence[Buffer | SupportsDLPack]"
Blocks: TypeAlias = "Mapping[int, Buffer | SupportsDLPack]"
ExtraKeys: TypeAlias = Mapping[int, bytes | Sequence[bytes]]
Keys: TypeAlias = "Buffer | SupportsDLPack | Sequence[bytes]"
Parents: TypeAlias = Iterable[int | bytes]
Lengths: TypeAlias = Sequence[int]
Places: TypeAlias = "Buffer | SupportsDLPack | Sequence[Buffer | SupportsDLPack]"
Weights: TypeAlias = bytes | tuple[str, bytes | str]
Costs: TypeAlias = tuple[float, float]
Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Size: TypeAlias = int | str
Seconds: TypeAlias = float | timedelta
