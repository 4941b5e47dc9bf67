"""The host tier's memory as pinned memory of CUDA, so that copies from it run beside computation.

    with register_arena(store):
        ...   # torch copies of leased views with non_blocking=True are asynchronous

Not run on a GPU yet: the tests drive it with a CUDA runtime that only keeps books.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from kvstore import ArenaRange, Store, StoreIOError

__all__ = ["PinnedArena", "register_arena"]

#: Flags of cudaHostRegister (CUDA runtime API, "Memory Management"): pinned for all contexts, and
#: memory that the device only reads, which a mapping without write permission needs.
PORTABLE = 0x01
READ_ONLY = 0x08


class Runtime(Protocol):
    """What of the CUDA runtime is needed: what torch.cuda.cudart() has. 0 is success."""

    def cudaHostRegister(self, address: int, size: int, flags: int) -> Any: ...

    def cudaHostUnregister(self, address: int) -> Any: ...


def register_arena(store: Store) -> PinnedArena:
    """Pins the host tier's memory for the life of the result, a context manager.

    All of the arena (stats()["host"]["arena"] bytes) is backed with memory at once, also what
    holds nothing yet. Raises StoreIOError where there is no CUDA device, or where the CUDA runtime
    refuses (memlock limits, a device that cannot register read-only memory).
    """
    if not torch.cuda.is_available():
        raise StoreIOError(
            "register_arena: there is no CUDA device here (torch.cuda.is_available() is False); "
            "without one there is nothing to pin memory for"
        )
    runtime: Runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    return PinnedArena(store.arena_range(), runtime)


class PinnedArena(AbstractContextManager["PinnedArena"]):
    """Registered memory. It stays mapped until `close`, also when the store was closed before."""

    def __init__(self, arena: ArenaRange, runtime: Runtime) -> None:
        self._runtime = runtime
        self._arena: ArenaRange | None = None
        self.address, self.nbytes = arena.address, arena.nbytes
        flags = PORTABLE | (READ_ONLY if arena.read_only else 0)
        said = int(runtime.cudaHostRegister(self.address, self.nbytes, flags))
        if said != 0:
            raise StoreIOError(
                f"register_arena: cudaHostRegister of {self.nbytes} bytes says {said} "
                "(cudaError_t); is the memlock limit large enough?"
            )
        self._arena = arena

    def close(self) -> None:
        """Takes the registration back; no copy from the memory may be on its way. A second call
        does nothing."""
        if self._arena is None:
            return
        said = int(self._runtime.cudaHostUnregister(self.address))
        if said != 0:
            raise StoreIOError(f"register_arena: cudaHostUnregister says {said} (cudaError_t)")
        self._arena = None

    def __exit__(self, *_: object) -> None:
        self.close()
