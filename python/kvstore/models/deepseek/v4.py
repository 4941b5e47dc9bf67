"""DeepSeek-V4 (arXiv 2606.19348): CSA and HCA layers in turn, and a window of 128 in each.

    window   the layer's own rows of the last 128 tokens, nothing else
    CSA      also entries of 4 tokens, of which an indexer picks some for each query
    HCA      also entries of 128 tokens, all of them

An entry is visible from the last token of its group on, not a window later: the query at t sees the
first floor((t + 1) / m). Which layer is which is the layout's: `csa` and `hca` name their owners.
"""

from __future__ import annotations

from torch import Tensor, nn

from kvstore.layouts import Layout
from kvstore.models.deepseek.index import KEY, Indexer
from kvstore.models.deepseek.model import ReferenceModel, Shape
from kvstore.models.deepseek.parts import rotate
from kvstore.models.deepseek.pooling import Compressor
from kvstore.models.deepseek.rows import Step
from kvstore.models.deepseek.shared import ROPE, SharedKeyAttention

__all__ = ["CsaAttention", "HcaAttention", "PooledModel", "WindowAttention"]


class WindowAttention(nn.Module):
    """A layer that keeps its window only."""

    def __init__(self, layer: int, shape: Shape, width: int, window: int) -> None:
        super().__init__()
        self.layer = layer
        self.shared = SharedKeyAttention(layer, shape, width, window)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """x [T, hidden] -> [T, hidden]."""
        rows, c_q = self.shared.rows(x, step), self.shared.query_latent(x)
        entries, ratio, picks = self.far(x, c_q, step)
        mixed: Tensor = self.shared(c_q, step.positions(), rows, entries, ratio, picks)
        return mixed

    def far(self, x: Tensor, c_q: Tensor, step: Step) -> tuple[Tensor | None, int, Tensor | None]:
        """Entries beyond the window, tokens of each, and which of them each query reads."""
        return None, 1, None


class HcaAttention(WindowAttention):
    """Heavily compressed attention: dense over entries of 128 tokens."""

    def __init__(self, layer: int, shape: Shape, width: int, window: int, ratio: int) -> None:
        super().__init__(layer, shape, width, window)
        self.pool = Compressor(shape.hidden, width, ratio)

    def far(self, x: Tensor, c_q: Tensor, step: Step) -> tuple[Tensor, int, None]:
        made, at = self.pool(x, step, "hca-tail", self.layer)
        entries = step.entries("hca", self.layer, rotate(made, at, ROPE))
        return entries, self.pool.ratio, None


class CsaAttention(WindowAttention):
    """Compressed sparse attention: entries that pool 8 tokens, picked by their own index keys."""

    def __init__(self, layer: int, shape: Shape, width: int, window: int, ratio: int) -> None:
        super().__init__(layer, shape, width, window)
        self.pool = Compressor(shape.hidden, width, ratio, overlap=True)
        self.key_pool = Compressor(shape.hidden, KEY, ratio, overlap=True)
        self.indexer = Indexer(shape.hidden, shape.hidden, shape.index_heads, shape.topk)

    def far(self, x: Tensor, c_q: Tensor, step: Step) -> tuple[Tensor, int, Tensor]:
        made, at = self.pool(x, step, "csa-tail", self.layer)
        entries = step.entries("csa", self.layer, rotate(made, at, ROPE))
        key, _ = self.key_pool(x, step, "csa-index-tail", self.layer)
        keys = step.entries("csa-index", self.layer, rotate(key, at, ROPE))
        picks, _ = self.indexer(x, c_q, step.positions(), keys, self.pool.ratio)
        return entries, self.pool.ratio, picks


class PooledModel(ReferenceModel):
    """V4: each layer is what the layout's groups say it owns."""

    def __init__(self, layout: Layout, form: str, shape: Shape) -> None:
        groups = {group.name: group for group in layout.groups}
        csa, hca, near = groups["csa"], groups["hca"], groups["window"]
        window = near.window or 0

        def attention(layer: int) -> WindowAttention:
            given = (layer, shape, near.elements, window)
            if layer in csa.layers:
                return CsaAttention(*given, csa.ratio)
            if layer in hca.layers:
                return HcaAttention(*given, hca.ratio)
            return WindowAttention(*given)

        super().__init__(layout, form, shape, [attention(layer) for layer in near.layers])
