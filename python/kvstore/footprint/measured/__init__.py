"""``kvstore footprint --measured``: caches of real models, stored, and counted on disk.

One process runs a prompt through a model whose cache has an architecture's true geometry, stores
it through `kvstore.torch.PrefixCache` under several policies, and is killed. Then the stores' files
are read, by the format and without the engine, and held against the arithmetic. A second process
restores each and goes on.
"""

from kvstore.footprint.measured.record import Record, as_rows, measured_table
from kvstore.footprint.measured.running import measure

__all__ = ["Record", "as_rows", "measure", "measured_table"]
