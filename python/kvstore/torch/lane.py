"""Copies to a device in order, beside the computation: a stream on CUDA, plain copies elsewhere.

The CUDA branch has not been run on a GPU yet.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

__all__ = ["Lane"]


class Lane:
    """Copies that run one after the other; an event after some of them guards their readers.

    Events are None on devices without streams: there a copy is over when the call returns.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        # The memory that is copied to may still be in use by what had it before.
        self.hold(self.computed())

    def on(self) -> AbstractContextManager[object]:
        """Copies made inside run in this lane."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def event(self) -> torch.cuda.Event | None:
        """Over when every copy that was queued so far is."""
        return None if self._stream is None else _record(self._stream)

    def computed(self) -> torch.cuda.Event | None:
        """Over when everything that the caller's stream was given so far is."""
        if self._stream is None:
            return None
        return _record(torch.cuda.current_stream(self._device))

    def hold(self, event: torch.cuda.Event | None) -> None:
        """The copies queued from now on wait for an event."""
        if self._stream is not None and event is not None:
            self._stream.wait_event(event)

    def guard(self, event: torch.cuda.Event | None) -> None:
        """What the caller's stream is given from now on waits for an event."""
        if event is not None:
            torch.cuda.current_stream(self._device).wait_event(event)


def _record(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event: torch.cuda.Event = stream.record_event()
    return event
