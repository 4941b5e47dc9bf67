"""Watches a model's forward calls while a session is open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kvstore.errors import InvalidArgument
from kvstore.torch.binding import Binding
from kvstore.torch.recorder import Recorder

__all__ = ["Follower", "Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt of a batch."""

    recorder: Recorder
    #: Its tokens, without padding.
    prompt: list[int]
    #: Columns of padding on the left.
    pad: int = 0


class Follower:
    """Hooks on a model: each call with the session's cache tells the recorders its tokens.

    The tokens come from the calls themselves, so what is stored is what was computed, whatever
    the caller samples, accepts or takes back. A call whose tokens cannot be known (embeddings in
    their place) ends the recording: what was stored before stays.

    ``copies`` is how often a cache of one prompt was repeated for beams; those are not recorded.
    """

    def __init__(self, binding: Binding, cache: Any, rows: list[Row], *, copies: int = 1) -> None:
        self._binding, self._cache, self._rows, self._copies = binding, cache, rows, copies
        self._recording = copies == 1
        self._first = True
        self._pending: list[list[int]] | None = None
        module = binding.module
        self._hooks = [
            module.register_forward_pre_hook(self._before, with_kwargs=True),
            module.register_forward_hook(self._after, with_kwargs=True),
        ]

    def close(self) -> None:
        """Takes the hooks off. A last token that generate took back is no longer counted."""
        for hook in self._hooks:
            hook.remove()
        self._taken_back()

    def _before(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if not any(value is self._cache for value in kwargs.values()):
            return None
        ids = kwargs.get("input_ids", args[0] if args else None)
        if not torch.is_tensor(ids):
            self._recording = False
            return None
        changed = None
        if self._first and self._whole_prompt_again(ids):
            kwargs = self._without_stored(kwargs)
            ids, changed = kwargs["input_ids"], (args, kwargs)
        self._check_shape(ids, first=self._first)
        self._first = False
        if self._recording:
            self._taken_back()
            self._pending = ids.tolist()
            self._check_tokens(self._pending)
        return changed

    def _after(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            for row, ids in zip(self._rows, pending, strict=True):
                row.recorder.computed(ids)

    def _columns(self) -> int:
        row = self._rows[0]
        return len(row.recorder.ids) + row.pad

    def _whole_prompt_again(self, ids: torch.Tensor) -> bool:
        """Whether generate gives the stored tokens as well, which it does to caches that do not
        count their tokens (all layers recurrent) and when it decodes with assistance."""
        row = self._rows[0]
        return self._columns() > 0 and ids.shape[1] >= len(row.prompt) + row.pad

    def _without_stored(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments without the columns that the cache holds. A mask covers those as well,
        unless nothing but recurrent layers reads it."""
        whole, stored = kwargs["input_ids"].shape[1], self._columns()
        per_token = {"input_ids", "position_ids"}
        if self._binding.length(self._cache) is None:
            per_token.add("attention_mask")
        return {
            name: value[..., stored:]
            if name in per_token and torch.is_tensor(value) and value.shape[-1] == whole
            else value
            for name, value in kwargs.items()
        }

    def _all_stored(self, ids: torch.Tensor) -> bool:
        """Whether these are the very tokens that the cache holds: generate calls the model with all
        tokens of a prompt that is no longer than the cache."""
        row = self._rows[0]
        stored = row.recorder.ids
        return len(stored) > 0 and ids[0, row.pad :].tolist() == stored

    def _check_shape(self, ids: torch.Tensor, *, first: bool) -> None:
        wanted = len(self._rows) * self._copies
        if ids.shape[0] != wanted:
            raise InvalidArgument(
                f"the cache holds {wanted} sequences, the model was called with {ids.shape[0]}: "
                "beams and several returned sequences need session(..., sequences=N)"
            )
        if ids.shape[1] == 0 or (first and self._all_stored(ids)):
            raise InvalidArgument(
                f"the cache holds {self._columns()} tokens and the call brings no new one: give "
                "generate the whole prompt that the session was opened with"
            )

    def _check_tokens(self, pending: list[list[int]]) -> None:
        for row, ids in zip(self._rows, pending, strict=True):
            at = len(row.recorder.ids)
            same = row.prompt[at : at + len(ids)]
            if same != ids[: len(same)]:
                raise InvalidArgument(
                    f"input_ids: the tokens from position {at} on are not those of the prompt "
                    "that the session was opened with"
                )

    def _taken_back(self) -> None:
        """Assisted decoding cuts the cache after tokens that were not accepted."""
        columns = self._binding.length(self._cache)
        if columns is not None and self._recording:
            for row in self._rows:
                row.recorder.rolled_back(columns - row.pad)
