"""docs/lineage.md: the tables that the founding paper lost, rebuilt from layouts.

Every number is computed here from the registry, or stands in ``record.toml`` with its source.
"""

from kvstore.footprint.lineage.document import lineage_document

__all__ = ["lineage_document"]
