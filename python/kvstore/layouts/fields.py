"""Reading a configuration field by field, whatever it is: object or dict."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

#: Fields under which models of several parts keep their text model.
TEXT_PARTS = (
    "text_config",
    "language_config",
    "llm_config",
    "thinker_config",
    "decoder",
    "decoder_config",
    "text_encoder_config",
    "language_model_config",
)


_SPARSE = "sparse_attention_config"


class CannotPlace(ValueError):
    """A configuration whose cache has no layout here, and the field that says so."""

    def __init__(self, field: str, why: str, model_type: str = "") -> None:
        where = f"{model_type}: " if model_type else ""
        super().__init__(f"{where}field {field!r}: {why}")
        self.field = field
        self.why = why
        self.model_type = model_type


class Config:
    """One configuration, by field: an object's attributes or a dict's keys."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    @classmethod
    def of_text_model(cls, raw: Any) -> Config:
        """The part that generates text; the whole where there are no parts."""
        config = cls(raw)
        for _ in range(4):
            part = config._text_part()
            if part is None:
                return config
            config = cls(part)
        return config

    def _text_part(self) -> Any:
        part: Any
        for name in TEXT_PARTS:
            part = self.get(name)
            if part is not None and not isinstance(part, str | int | float | list):
                return part
        return None

    def get(self, name: str, default: Any = None) -> Any:
        """The field, or the default when it is absent or None. Tables of a sparse indexer count as
        fields."""
        if isinstance(self.raw, dict):
            value = self.raw.get(name)
            if value is None and name.startswith("sparse_") and name != _SPARSE:
                value = (self.raw.get(_SPARSE) or {}).get(name)
        else:
            try:
                value = getattr(self.raw, name, None)
            except Exception:
                value = None  # properties of strict configurations raise what they like
        return default if value is None else value

    def first(self, *names: str) -> Any:
        """The first of these fields that is there."""
        return next((v for v in map(self.get, names) if v is not None), None)

    def number(self, *names: str, default: int | None = None) -> int:
        """A whole number under one of these names."""
        value = self.first(*names)
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            kind = "is absent" if value is None else f"= {value!r} is no whole number"
            raise CannotPlace(names[0], kind, self.model_type)
        return value

    def layer_count(self) -> int:
        """Layers of the model, of its decoder where it has an encoder as well."""
        names = ["num_hidden_layers", "n_layer", "n_layers", "num_layers"]
        if self.get("is_encoder_decoder"):
            decoder = ["decoder_layers", "num_decoder_layers", "decoder_num_hidden_layers"]
            names = [*decoder, *names]
        count = self.number(*names)
        if not 1 <= count <= 4096:
            raise self.cannot(names[0], f"= {count} must be 1 to 4096")
        return count

    def layer(self, index: int) -> Config:
        """This configuration as one layer sees it (heterogeneous models override fields)."""
        table = self.get("per_layer_config")
        if isinstance(table, dict):
            overrides = {int(key): value for key, value in table.items() if str(key).isdigit()}
            return _Layer(self, overrides[index]) if index in overrides else self
        try:
            return self if table is None else Config(table[index])
        except (AttributeError, IndexError, KeyError, TypeError):
            return self  # a class without layers of one count has no such view

    @property
    def model_type(self) -> str:
        """The model type, or an empty string."""
        return str(self.get("model_type") or "")

    def cannot(self, field: str, why: str) -> CannotPlace:
        """The error for a field of this configuration."""
        return CannotPlace(field, why, self.model_type)


class _Layer(Config):
    """A configuration whose fields one layer overrides."""

    def __init__(self, base: Config, overrides: dict[str, Any]) -> None:
        super().__init__(base.raw)
        self.overrides = overrides

    def get(self, name: str, default: Any = None) -> Any:
        if self.overrides.get(name) is not None:
            return self.overrides[name]
        return super().get(name, default)


def runs(layers: Iterable[int]) -> str:
    """Layers as a TOML list."""
    return "[" + ", ".join(map(str, layers)) + "]"
