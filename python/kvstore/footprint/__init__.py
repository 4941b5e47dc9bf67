"""What every architecture's cache costs to keep, to hold and to read: tables, pictures, bills."""

from kvstore.footprint.tables import (
    Basis,
    Table,
    axes_table,
    cost_table,
    fit_table,
    forms_table,
    master_table,
    overhead_table,
    persistent_table,
    rank_table,
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
