"""Waiting for a batch in an event loop."""

import asyncio

from kvstore._core import Batch, Statuses

__all__ = ["settled"]


async def settled(batch: Batch) -> Statuses:
    """The statuses of a batch once every item has its answer: what `await batch` does."""
    if not batch.done:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        fd = batch.fileno()
        loop.add_reader(fd, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(fd)
    return batch.status
