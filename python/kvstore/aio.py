"""Waiting for a batch in an event loop."""

import asyncio

from kvstore._core import Batch, Statuses

__all__ = ["settled"]


async def settled(batch: Batch) -> Statuses:
    """The statuses of a batch once every item has its answer: what `await batch` does."""
    if not batch.done:
        loop = asyncio.get_running_loop()
        readable = loop.create_future()
        fd = batch.fileno()
        loop.add_reader(fd, lambda: readable.done() or readable.set_result(None))
        try:
            await readable
        finally:
            loop.remove_reader(fd)
    return batch.status
