"""Models of transformers with a quantised cache, which is kept as a whole.

Shapes and classes are those of transformers 5.24 (``QuantizedCache``). Such a cache has no blocks
that two prompts could share: the fp8 one takes one scale per tensor from the first chunk, and the
integer ones quantise all of the history anew whenever the rows that they keep in full precision
reach ``residual_length``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any

import torch
from torch import nn

from kvstore._core import Group, Layout
from kvstore.errors import InvalidArgument
from kvstore.torch.errors import Unreadable, Unsupported
from kvstore.torch.objects import Fields, Place
from kvstore.torch.serial import VERSION, decode, encode
from kvstore.torch.transformers import TransformersModel

__all__ = ["BACKENDS", "MARK", "QuantizedBinding"]

#: Backends of QuantizedCache, and the distribution that each needs.
BACKENDS: dict[str, str | None] = {"fp8": None, "hqq": "hqq", "quanto": "optimum-quanto"}
#: Settings of the integer backends; fp8 has none.
SETTINGS = ("nbits", "axis_key", "axis_value", "q_group_size", "residual_length")
#: The checkpoint of a resume point: that the whole cache of this prefix is kept under its key.
MARK = b"whole"

_BLOCK_TOKENS = 64
#: What a layer makes of its settings when it is built: a new one has its own.
_BUILT = frozenset({"optimizer", "qtype", "quantizer"})


class QuantizedBinding(TransformersModel):
    """A model with the cache that ``cache_implementation="quantized"`` makes.

    To the store the whole cache is one row of bytes, which is valid at one token only.

    The model runs once over one block, to see what its layers keep.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        backend: str,
        block_tokens: int | None = None,
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__(model)
        if backend not in BACKENDS:
            raise InvalidArgument(f"backend = {backend!r} must be one of {', '.join(BACKENDS)}")
        for name in settings:
            if name not in SETTINGS:
                raise InvalidArgument(f"{name} is no setting of a quantised cache: {SETTINGS}")
        self._backend, self._settings = backend, dict(settings)
        tokens = _BLOCK_TOKENS if block_tokens is None else block_tokens
        row = Group("whole", len(MARK), [0], kind="state")
        self.layout = Layout.opaque("quantized cache", tokens, [row], form=f"whole:{VERSION}")
        self._check()
        self._probe = self._run_probe()

    def _check(self) -> None:
        from transformers import QuantizedCache

        try:
            QuantizedCache("fp8", self._config)  # needs no package and has no settings
        except ValueError as error:
            raise Unsupported(f"{self._config.model_type}: {error}") from error
        try:
            self.new_cache()
        except ValueError as error:
            raise InvalidArgument(str(error)) from error

    def _run_probe(self) -> Any:
        """A cache of one block: what has no place in the store is found out here."""
        tokens = self.layout.block_tokens
        ids = torch.zeros(1, tokens, dtype=torch.int64, device=self.device)
        cache = self.new_cache()
        with torch.inference_mode(False), torch.no_grad():
            self.forward(ids, cache, 0)
        encode(self._tree(cache))
        return cache

    def describe(self) -> dict[str, str]:
        """The backend, its version and its settings, as a namespace takes them."""
        package, layer = BACKENDS[self._backend], self._probe.layers[0]
        version = f" {metadata.version(package)}" if package else ""
        settings = {name: str(getattr(layer, name)) for name in SETTINGS if hasattr(layer, name)}
        return {"backend": self._backend + version, **settings}

    def new_cache(self) -> Any:
        from transformers import QuantizedCache

        return QuantizedCache(self._backend, self._config, **self._settings)

    def snapshot(self, cache: Any) -> Any:
        """What a cache is now, as a tree for `kvstore.torch.serial`. Its tensors are the cache's
        own: updates put others in their place and change none.

        Raises InvalidArgument for a cache of another backend or other settings.
        """
        layers = getattr(cache, "layers", [])
        if len(layers) != len(self._probe.layers) or not all(
            map(_alike, layers, self._probe.layers)
        ):
            raise InvalidArgument(
                f"cache: a {type(cache).__name__} given, a QuantizedCache with backend = "
                f"{self._backend!r} and the settings {self._settings} wanted"
            )
        return self._tree(cache)

    def _tree(self, cache: Any) -> Any:
        return [_state(layer) for layer in cache.layers]

    def fields(self, cache: Any, group: Group, layer: int, row: int = 0) -> Fields:
        return [encode(self.snapshot(cache)).unsqueeze(0)]

    def fill(self, rows: Mapping[Place, Fields], length: int) -> Any:
        """Raises Unreadable where the bytes are not those of such a cache."""
        [[whole]] = rows.values()
        with torch.inference_mode(False):
            tree = decode(whole[0], self.device)
        cache = self.new_cache()
        like = self._tree(self._probe)
        if type(tree) is not list or len(tree) != len(like):
            raise Unreadable(f"not the {len(like)} layers of a cache")
        for layer, state, known in zip(cache.layers, tree, like, strict=True):
            if type(state) is not dict or state.keys() != known.keys():
                raise Unreadable(f"not what a {type(layer).__name__} keeps")
            if state["cumulative_length"] != length:
                raise Unreadable(f"{state['cumulative_length']!r} tokens, {length} wanted")
            vars(layer).update(state)
        return cache


def _state(layer: Any) -> dict[str, Any]:
    return {name: _held(value) for name, value in vars(layer).items() if name not in _BUILT}


def _held(value: Any) -> Any:
    """The same values in containers of their own."""
    if type(value) is dict:
        return {key: _held(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_held, value))
    return value


def _alike(layer: Any, other: Any) -> bool:
    return type(layer) is type(other) and all(
        getattr(layer, name, None) == getattr(other, name, None) for name in SETTINGS
    )
