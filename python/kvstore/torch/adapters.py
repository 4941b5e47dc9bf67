"""PEFT adapters of a model: what they add to it, and what the model is without them.

PEFT (0.21; by itself or through transformers' `load_adapter`) replaces a layer by one that holds
the old one as `base_layer` next to the weights of each adapter. Which adapters count, and how
much, is state of those layers. peft is never imported here: a model that has such layers has
imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import torch

from kvstore.errors import InvalidArgument
from kvstore.torch.framed import Framed

__all__ = ["adapter_digest", "base_name", "unwrapped"]

#: Fields of an adapter's configuration that say where it came from, not what it does.
_ORIGIN = {
    "auto_mapping",
    "base_model_name_or_path",
    "inference_mode",
    "peft_version",
    "revision",
}
#: Children of a replaced module that stand for the module itself.
_BASE = {"base_layer", "original_module", "token_adapter"}


def unwrapped(model: Any) -> Any:
    """The transformers model inside what `torch.compile` and PEFT put around it.

    InvalidArgument for a prompt-learning adapter: it brings keys and values of its own.
    """
    model = getattr(model, "_orig_mod", model)
    peft = sys.modules.get("peft")
    if peft is None or not isinstance(model, peft.PeftModel):
        return model
    for config in model.peft_config.values():
        if config.is_prompt_learning:
            raise InvalidArgument(
                f"adapter of type {config.peft_type}: it puts keys and values of its own before "
                "the prompt's, so the cache is not that of the prompt's tokens"
            )
    return model.get_base_model()


def _is_adapted(module: Any) -> bool:
    """Whether PEFT put this module in the place of another."""
    if "peft" not in sys.modules:
        return False
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    return isinstance(module, BaseTunerLayer | AuxiliaryTrainingWrapper)


def _adapted(model: Any) -> Iterator[tuple[str, Any]]:
    """The modules that PEFT put in the place of others, and their names."""
    return ((name, module) for name, module in model.named_modules() if _is_adapted(module))


def base_name(model: Any, key: str) -> str | None:
    """The name of an entry of the state dict in the model without adapters; None for what belongs
    to an adapter."""
    module, kept = model, []
    for part in key.split("."):
        if _is_adapted(module):
            if part not in _BASE:
                return None
        else:
            kept.append(part)
        module = getattr(module, part, None)
    return ".".join(kept)


def adapter_digest(model: Any) -> bytes | None:
    """BLAKE3 of what the active adapters do to a model: their weights, scalings and
    configurations, not their names. None where none is active.

    A merged adapter is part of the weights: it is not counted here.
    """
    model = unwrapped(model)
    framed, found = Framed("kvstore adapter 1"), False
    configs = getattr(model, "peft_config", {})
    for name, module in sorted(_adapted(model), key=lambda pair: pair[0]):
        if module.disable_adapters:
            continue
        for adapter in module.active_adapters:
            if adapter in module.merged_adapters or adapter not in _known(module):
                continue
            found = True
            framed.text(base_name(model, f"{name}.base_layer") or name)
            framed.text(type(module).__qualname__)
            _content(framed, module, adapter)
            framed.value("config", _config(configs.get(adapter)))
    return framed.digest() if found else None


def _known(module: Any) -> set[str]:
    """The adapters that this module has a part of."""
    parts = (_part(module, name) for name in module.adapter_layer_names)
    return {key for part in parts for key in (part.keys() if hasattr(part, "keys") else ())}


def _part(module: Any, name: str) -> Any:
    return attrgetter(name)(module)


def _content(framed: Framed, module: Any, adapter: str) -> None:
    """The tensors and numbers of one adapter in one module."""
    for name in sorted({*module.adapter_layer_names, *module.other_param_names}):
        part = _part(module, name)
        if hasattr(part, "keys"):
            if adapter not in part.keys():  # noqa: SIM118  (torch's dicts of modules)
                continue
            part = part[adapter]
        framed.text(name)
        if isinstance(part, torch.nn.Module):  # its class and its tensors, buffers included
            framed.value(name, dict(part.named_buffers()))
        framed.value(name, part)


def _config(config: Any) -> dict[str, Any]:
    """An adapter's configuration without its origin."""
    fields = config.to_dict() if config is not None else {}
    return {key: value for key, value in fields.items() if key not in _ORIGIN}
