"""Whether a model is still the one that its namespace describes."""

from __future__ import annotations

import sys
from typing import Any

import torch

__all__ = ["signature"]


def signature(model: Any) -> tuple[Any, ...]:
    """What changes when a model's weights, attention or adapters do, without reading the weights.

    Of each parameter its memory and torch's count of writes to it, the attention implementation,
    and of each adapted layer which adapters count and how much. A write behind torch's back
    (through ``.data`` or another view of the memory) is not seen.
    """
    parameters = tuple((p.data_ptr(), _writes(p)) for p in model.parameters())
    attention = str(getattr(getattr(model, "config", None), "_attn_implementation", ""))
    return (attention, parameters, *_adapters(model))


def _writes(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _adapters(model: Any) -> tuple[Any, ...]:
    if "peft" not in sys.modules:
        return ()
    from peft.tuners.tuners_utils import BaseTunerLayer

    return tuple(
        (
            name,
            tuple(module.active_adapters),
            tuple(getattr(module, "merged_adapters", ())),
            bool(module.disable_adapters),
            tuple(sorted(getattr(module, "scaling", {}).items())),
        )
        for name, module in model.named_modules()
        if isinstance(module, BaseTunerLayer)
    )
