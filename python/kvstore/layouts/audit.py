"""``kvstore layouts --audit``: every configuration class of transformers, and its layout or the
field that has no place."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from kvstore._core import Layout
from kvstore.layouts.fields import CannotPlace
from kvstore.layouts.hf import layout_from_config


@dataclass(frozen=True)
class Finding:
    """One configuration class with its defaults."""

    model_type: str
    #: What it keeps, group by group; empty when it has no place.
    layout: str
    bytes_per_token: str
    #: The field that has no place, and why.
    field: str
    why: str

    def line(self) -> str:
        """The finding as one line of the committed list."""
        if self.field:
            return f"{self.model_type}: not placed, {self.field}: {self.why}"
        return f"{self.model_type}: {self.bytes_per_token} B per token; {self.layout}"

    def row(self) -> dict[str, str]:
        """The finding as a JSON row."""
        return asdict(self)


def available() -> str | None:
    """The installed version of transformers, or None."""
    try:
        return str(importlib.import_module("transformers").__version__)
    except ImportError:
        return None


def audit() -> Iterator[Finding]:
    """Goes through CONFIG_MAPPING in the order of its names. Raises nothing for what it finds."""
    mapping = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    for model_type in sorted(mapping.keys()):
        yield _finding(model_type, mapping)


def _finding(model_type: str, mapping: Any) -> Finding:
    try:
        config = mapping[model_type]()
    except Exception as error:
        why = f"the class has no default configuration: {type(error).__name__}"
        return Finding(model_type, "", "", "config", why)
    try:
        layout = layout_from_config(config, dtype="bfloat16")
    except CannotPlace as error:
        return Finding(model_type, "", "", error.field, error.why)
    return Finding(model_type, summary(layout), str(layout.bytes_per_token()), "", "")


def summary(layout: Layout) -> str:
    """What a layout keeps, group by group, in a few words."""
    parts = []
    for group in layout.groups:
        kind = f"window({group.window})" if group.window else group.kind
        ratio = f" per {group.ratio}" if group.ratio > 1 else ""
        parts.append(f"{group.name} {kind} {len(group.layers)} x {group.record_bytes} B{ratio}")
    return ", ".join(parts)
