"""docs/lineage.md: the tables that the founding paper lost, rebuilt from layouts.

Every number is computed here from the registry, or stands in ``record.toml`` with its source, or in
``measured.json``, which ``make measured`` writes.
"""

from kvstore.footprint.lineage.document import lineage_document

__all__ = ["lineage_document"]
