"""Several prompts at once, padded on the left."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from kvstore.errors import InvalidArgument
from kvstore.torch.follow import Follower, Row
from kvstore.torch.recorder import Saved
from kvstore.torch.session import Session

if TYPE_CHECKING:
    from kvstore.torch.prefix import PrefixCache

__all__ = ["BatchSession"]


class BatchSession:
    """Prompts [batch, tokens] of one call of ``generate``, each with a stored prefix of its own.

    Every prompt is restored, computed and stored by itself, up to its last token, so that its rows
    are those of the prompt alone; then the caches are joined, padded on the left as the prompts
    are. Raises Unsupported where caches of different lengths cannot be joined (DeepSeek V4 pools
    tokens by position).

    ``attention_mask`` [batch, tokens] is 1 at tokens and 0 at the padding before them; None without
    padding.
    """

    def __init__(
        self,
        prefix: PrefixCache,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **options: Any,
    ) -> None:
        self._prefix = prefix
        self._pads = _pads(input_ids, attention_mask)
        self._sessions = [
            Session(prefix, row[pad:], prefill=False, follow=False, **options)
            for row, pad in zip(input_ids, self._pads, strict=True)
        ]
        for number, session in enumerate(self._sessions):
            if session.prompt < 2:
                raise InvalidArgument(f"input_ids: prompt {number} has 1 token, 2 wanted")
        self._cache: Any = None
        self._follower: Follower | None = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> BatchSession:
        binding = self._prefix.binding
        with contextlib.ExitStack() as opened:
            for session in self._sessions:
                opened.enter_context(session)
                session.compute(session.prompt - 1 - session.length)
            lengths = [session.length for session in self._sessions]
            caches = [session.cache for session in self._sessions]
            columns = lengths[0] + self._pads[0]
            self._cache = binding.join(caches, lengths, columns)
            rows = []
            for number, (session, pad) in enumerate(zip(self._sessions, self._pads, strict=True)):
                recorder = session._opened
                recorder.moved(self._cache, number, pad)
                rows.append(Row(recorder, session._all_ids.tolist(), pad))
            self._follower = Follower(binding, self._cache, rows)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._follower is not None:
            self._follower.close()
        self._open.__exit__(kind, error, trace)

    @property
    def cache(self) -> Any:
        """The joined cache; its tensors are the caller's."""
        if self._cache is None:
            raise InvalidArgument("the session is not entered: use it in a with statement")
        return self._cache

    @property
    def kwargs(self) -> dict[str, Any]:
        """The cache under the name that ``generate`` wants."""
        return {self._prefix.binding.argument: self.cache}

    @property
    def saved(self) -> list[Saved]:
        """What was stored so far, by prompt."""
        return [session.saved for session in self._sessions]

    @property
    def usable(self) -> list[int]:
        """Tokens that were restored, by prompt."""
        return [session.plan.usable for session in self._sessions]


def _pads(input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> list[int]:
    """Columns of padding before each prompt."""
    if attention_mask is None:
        return [0] * input_ids.shape[0]
    if attention_mask.shape != input_ids.shape:
        raise InvalidArgument(
            f"attention_mask: shape {tuple(attention_mask.shape)} given, that of input_ids, "
            f"{tuple(input_ids.shape)}, wanted"
        )
    mask = attention_mask.bool()
    if bool((mask[:, :-1] & ~mask[:, 1:]).any()) or not bool(mask[:, -1].all()):
        raise InvalidArgument(
            "attention_mask: padding must be on the left (tokenizer.padding_side = 'left')"
        )
    return [int(pad) for pad in (~mask).sum(dim=1)]
