"""What every architecture's cache costs to keep, to hold and to read: tables, pictures, bills."""

from kvstore.footprint.costs import Basis, cost_table, fit_table, overhead_table, rank_table
from kvstore.footprint.table import Table
from kvstore.footprint.tables import (
    axes_table,
    forms_table,
    master_table,
    persistent_table,
    read_table,
    request_table,
)

__all__ = [
    "Basis",
    "Table",
    "axes_table",
    "cost_table",
    "fit_table",
    "forms_table",
    "master_table",
    "overhead_table",
    "persistent_table",
    "rank_table",
    "read_table",
    "request_table",
]
