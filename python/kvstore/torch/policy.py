"""Which resume points are kept of what a session computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from kvstore._core import Layout, keep

__all__ = ["Kept", "Policy"]


class Kept(NamedTuple):
    """What a policy keeps of one computed stretch."""

    #: Checkpoints, in tokens.
    checkpoints: set[int]
    #: Blocks whose windows are kept.
    windows: set[int]


@dataclass(frozen=True, slots=True)
class Policy:
    """Where a prompt can go on later: every so many tokens, at prompt end and output end.

    ``every`` is in tokens, rounded down to block ends; None keeps no periodic points. ``windows``
    is "all" (of every block), "trailing" (those that a resume point needs) or "none". The default
    is what DeepSeek deploys for V4 (arXiv 2606.19348, 3.5.2). A layout without windows and state
    has a resume point at every block end whatever the policy says.
    """

    every: int | None = None
    prompt_end: bool = True
    output_end: bool = True
    windows: Literal["all", "trailing", "none"] = "trailing"

    @classmethod
    def never(cls) -> Policy:
        """Entries only: a resumed prompt replays (V4.1's, arXiv 2609.19969)."""
        return cls(prompt_end=False, output_end=False, windows="none")

    @classmethod
    def default(cls, layout: Layout) -> Policy:
        """`never` for a model that was made for a bounded replay, both ends for all others."""
        return cls.never() if layout.bounded_replay_tokens is not None else cls()

    def kept(self, layout: Layout, start: int, end: int, prompt: int, *, over: bool) -> Kept:
        """What is kept after the tokens ``start .. end`` were computed, of which those below
        ``prompt`` are the prompt. ``over`` says that nothing more follows: the output ends here.

        A prompt that ends with a block has two last points: its end, where a longer one goes on,
        and the block end before it, where the same prompt does, since one token is always computed.
        """
        checkpoints: set[int] = set()
        windows: set[int] = set()
        block = layout.block_tokens
        for length in {prompt, max(prompt - 1, 0)}:
            _, points, blocks = keep(
                layout,
                start,
                end,
                length,
                every=self.every,
                prompt_end=self.prompt_end and length // block * block <= end,
                output_end=self.output_end and over,
                windows=self.windows,
            )
            checkpoints.update(points)
            windows.update(blocks)
        return Kept(checkpoints, windows)
