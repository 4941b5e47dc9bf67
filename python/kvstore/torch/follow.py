"""Watches a model's forward calls while a session is open."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch

from kvstore.errors import InvalidArgument
from kvstore.torch.binding import Binding
from kvstore.torch.recorder import Recorder

__all__ = ["Follower", "Row"]

#: Tensors of a call that are looked at by themselves, or change no row.
_KNOWN = {"input_ids", "attention_mask", "position_ids", "cache_position", "labels"} | {
    "logits_to_keep"
}


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
    the caller samples, accepts or takes back. A call whose rows are not those of its tokens alone
    raises InvalidArgument; where that cannot be known (embeddings in the place of tokens, a mask
    of another kind) the recording ends, and what was stored before stays.

    ``copies`` is how often a cache of one prompt was repeated for beams; those are not recorded.
    ``keyed`` says that the session's extra keys name what the model gets besides tokens.
    """

    def __init__(
        self,
        binding: Binding,
        cache: Any,
        rows: list[Row],
        *,
        copies: int = 1,
        keyed: bool = False,
    ) -> None:
        self._binding, self._cache, self._rows, self._copies = binding, cache, rows, copies
        self._keyed = keyed
        self._first = True
        self._pending: list[list[int]] | None = None
        module = binding.module
        self._names = list(inspect.signature(module.forward).parameters)
        self._hooks = [
            module.register_forward_pre_hook(self._before, with_kwargs=True),
            module.register_forward_hook(self._after, with_kwargs=True),
        ]

    def close(self) -> None:
        """Takes the hooks off. A last token that generate took back is no longer counted."""
        for hook in self._hooks:
            hook.remove()
        if self._copies == 1:
            for row in self._rows:
                row.recorder.counted()

    def _before(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        given = self._given(args, kwargs)
        if given is None:
            return None
        ids: Any = given.get("input_ids")
        if not torch.is_tensor(ids):
            self._stop("a call gave no input_ids")
        if self._copies == 1:
            for row in self._rows:
                row.recorder.counted()
        if self._rows[0].recorder.saved.stopped:
            return None
        changed = None
        if self._first and self._whole_prompt_again(given):
            given = self._without_stored(given)
            ids, changed = given["input_ids"], ((), given)
        self._check_shape(ids, first=self._first)
        self._check_others(given)
        self._check_mask(given.get("attention_mask"), ids.shape[1])
        self._first = False
        if self._copies == 1:
            self._check_positions(given.get("position_ids"), ids.shape[1])
            pending = ids.tolist()
            self._check_tokens(pending)
            for row in self._rows:
                row.recorder.begin()
            self._pending = pending
        return changed

    def _after(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        if self._pending is not None and self._given(args, kwargs) is not None:
            pending, self._pending = self._pending, None
            for row, ids in zip(self._rows, pending, strict=True):
                row.recorder.computed(ids)

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
        """The arguments of a call by name; None for one with another cache."""
        given = dict(zip(self._names, args, strict=False)) | kwargs
        return given if any(value is self._cache for value in given.values()) else None

    def _stop(self, reason: str) -> None:
        for row in self._rows:
            row.recorder.stop(reason)

    def _columns(self) -> int:
        row = self._rows[0]
        return len(row.recorder.ids) + row.pad

    def _whole_prompt_again(self, given: dict[str, Any]) -> bool:
        """Whether generate gives the stored tokens as well, which it does to caches that do not
        count their tokens (all layers recurrent) and when it decodes with assistance. Otherwise a
        mask is wider than the tokens, and positions begin behind those stored."""
        row, ids = self._rows[0], given["input_ids"]
        stored = row.recorder.ids
        if self._columns() == 0 or ids.shape[1] < len(row.prompt) + row.pad:
            return False
        mask, positions = given.get("attention_mask"), given.get("position_ids")
        if torch.is_tensor(mask) and mask.shape[-1] != ids.shape[1]:
            return False
        if torch.is_tensor(positions) and int(positions.flatten()[0]) == len(stored):
            return False
        return bool(ids[0, row.pad : self._columns()].tolist() == stored)

    def _without_stored(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments without the columns that the cache holds. A mask covers those as well,
        unless nothing but recurrent layers reads it."""
        whole, stored = given["input_ids"].shape[1], self._columns()
        per_token = {"input_ids", "position_ids"}
        if self._binding.length(self._cache) is None:
            per_token.add("attention_mask")
        return {
            name: value[..., stored:]
            if name in per_token and torch.is_tensor(value) and value.shape[-1] == whole
            else value
            for name, value in given.items()
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

    def _check_mask(self, mask: Any, new: int) -> None:
        """Each token sees all tokens before it, and no padding."""
        if mask is None:
            if any(row.pad for row in self._rows) and self._binding.length(self._cache) is not None:
                raise InvalidArgument("attention_mask: None given, that of the padding wanted")
            return
        if not torch.is_tensor(mask) or mask.ndim != 2:
            self._stop("a call gave a mask that is not [batch, tokens]")
            return
        width = mask.shape[1]
        end = self._columns() + new if self._copies == 1 else width
        pads = torch.tensor([[row.pad] for row in self._rows]).repeat_interleave(self._copies, 0)
        wanted = torch.arange(end - width, end) >= pads
        if mask.shape != wanted.shape or not bool((mask.bool().cpu() == wanted).all()):
            raise InvalidArgument(
                f"attention_mask: of shape {tuple(mask.shape)}, it hides tokens or shows padding, "
                "and the rows would not be those of the tokens. (generate hides pad tokens when it "
                "is given no mask: give it torch.ones_like(input_ids) where they are text)"
            )

    def _check_positions(self, positions: Any, new: int) -> None:
        if not torch.is_tensor(positions):
            return
        wanted = torch.tensor(
            [list(range(len(r.recorder.ids), len(r.recorder.ids) + new)) for r in self._rows]
        )
        if positions.shape[-1] != new or not bool((positions.cpu() == wanted).all()):
            if positions.ndim > 2 and self._keyed:  # positions in pictures, which the keys name
                return
            raise InvalidArgument(
                f"position_ids: {list(positions.shape)} from {int(positions.flatten()[0])} on "
                f"given, {new} from {int(wanted[0, 0])} on wanted: those after the cache's"
            )

    def _check_others(self, given: dict[str, Any]) -> None:
        """Pictures and the like decide the rows, but are not tokens."""
        if given.get("use_cache") is False:
            raise InvalidArgument("use_cache = False: a session goes on from its cache")
        for name, value in given.items():
            if name in _KNOWN or self._keyed or not torch.is_tensor(value):
                continue
            if name.endswith("token_type_ids") and not bool(value.any()):
                continue
            raise InvalidArgument(
                f"{name}: changes what the tokens give; open the session with prefill=False and "
                "extra_keys that name it"
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
