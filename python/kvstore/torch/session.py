"""One prompt on top of its stored prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

import kvstore
from kvstore.errors import InvalidArgument
from kvstore.torch.follow import Follower, Row
from kvstore.torch.recorder import Recorder, Saved

if TYPE_CHECKING:
    from kvstore.torch.prefix import Ids, PrefixCache

__all__ = ["Session"]

_NOT_ENTERED = "the session is not entered: use it in a with statement"


class Session:
    """A prompt whose prefix is restored when the block is entered, computed up to its last block
    end, and stored with what follows when the block is left.

    with prefix.session(input_ids) as s:
        out = model.generate(input_ids, **s.kwargs)

    While the block is open, the model's forward calls with ``s.cache`` are followed: their tokens
    and block ends become part of what is stored, so that a longer prompt goes on from the output.
    An exception that leaves the block stores nothing more.

    - prefill: compute up to the last block end before the prompt's end, in chunks whose rows do
      not depend on what follows (True). False leaves that to the caller's own calls.
    - allow_approximate: admit a bounded replay, and what was stored after one.
    - extra_keys: what besides the tokens decides the bytes of a block, {block: bytes}.
    - follow: follow the model's calls (True).
    - sequences: copies of the cache that generate wants: the larger of num_beams and
      num_return_sequences. With more than one only the prompt is stored.
    """

    def __init__(
        self,
        prefix: PrefixCache,
        input_ids: Ids,
        *,
        prefill: bool = True,
        allow_approximate: bool = False,
        extra_keys: Mapping[int, bytes | Sequence[bytes]] | None = None,
        follow: bool = True,
        sequences: int = 1,
    ) -> None:
        self._prefix = prefix
        self._all_ids = prefix._ids(input_ids)
        self._prefill, self._approximate, self._extra = prefill, allow_approximate, extra_keys
        self._follow, self._sequences = follow, sequences
        self._recorder: Recorder | None = None
        self._follower: Follower | None = None
        self._plan: kvstore.Plan | None = None

    def __enter__(self) -> Session:
        prefix = self._prefix
        cache, plan = prefix._restore(self._all_ids, self._extra, self._approximate)
        self._plan = plan
        self._recorder = prefix.recorder(
            cache,
            self._all_ids,
            length=plan.usable,
            prompt=len(self._all_ids),
            extra=self._extra,
            replayed_from=self._replayed_from(plan),
        )
        if self._prefill:
            block = prefix.layout.block_tokens
            self.compute((self.prompt - 1) // block * block - plan.usable)
        if self._follow:
            if self._sequences > 1:
                prefix.binding.repeat(cache, self._sequences)
            row = Row(self._recorder, self._all_ids.tolist())
            keyed = bool(self._extra)
            self._follower = Follower(
                prefix.binding, cache, [row], copies=self._sequences, keyed=keyed
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._follower is not None:
            self._follower.close()
            self._follower = None
        if kind is None:
            self._opened.finish()

    @property
    def _opened(self) -> Recorder:
        if self._recorder is None:
            raise InvalidArgument(_NOT_ENTERED)
        return self._recorder

    def _replayed_from(self, plan: kvstore.Plan) -> int | None:
        if plan.mode == "bounded_replay":
            at = plan.usable // self._prefix.layout.block_tokens
            return at if plan.replayed_from is None else plan.replayed_from
        return plan.replayed_from

    @property
    def plan(self) -> kvstore.Plan:
        """What was found: matched, usable and replay start."""
        if self._plan is None:
            raise InvalidArgument(_NOT_ENTERED)
        return self._plan

    @property
    def prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self._all_ids)

    @property
    def cache(self) -> Any:
        """The cache, of the model's own kind. Its tensors are the caller's."""
        return self._opened.cache

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return len(self._opened.ids)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The cache under the name that ``generate`` wants."""
        return {self._prefix.binding.argument: self.cache}

    @property
    def saved(self) -> Saved:
        """What was stored so far."""
        return self._opened.saved

    def compute(self, tokens: int) -> torch.Tensor:
        """Computes the next tokens of the prompt, in chunks that end where `chunk_tokens` do, and
        stores the blocks that they fill. The logits of the last one, [1, vocabulary]."""
        prefix, recorder = self._prefix, self._opened
        end, step = self.length + tokens, prefix.chunk_tokens
        if not self.length <= end <= self.prompt:
            raise InvalidArgument(f"tokens = {tokens} must be 0 to {self.prompt - self.length}")
        logits = torch.empty(0)
        device = prefix.binding.device
        with torch.inference_mode(False), torch.no_grad():
            while self.length < end:
                start = self.length
                stop = min(start // step * step + step, end)
                ids = torch.from_numpy(self._all_ids[start:stop]).unsqueeze(0).to(device)
                if self._follower is None:
                    recorder.begin()
                    recorder.counted()
                logits = prefix.binding.forward(ids, recorder.cache, start)
                if self._follower is None:
                    recorder.computed(self._all_ids[start:stop].tolist())
                if self.saved.stopped:
                    raise InvalidArgument(f"compute: {self.saved.stopped}")
        return logits
