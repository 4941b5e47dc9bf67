"""An embedded storage engine for the key-value caches of language models.

import kvstore
from kvstore.layouts import Layout

store = kvstore.open("/nvme/kv", host_bytes="8 GiB", disk_bytes="200 GiB")
ns = store.namespace(layout, model="...", weights=fingerprint, cache_salt=tenant)
with ns.lease(ns.match(token_ids)) as lease:
    ...
"""

import atexit
import sys

from kvstore import _core
from kvstore._core import (
    Answers,
    ArenaRange,
    Batch,
    Explanation,
    FieldDifference,
    Keyed,
    KeyedLease,
    KeyedMatch,
    Lease,
    Mirror,
    Namespace,
    Plan,
    Status,
    Statuses,
    Store,
    Usage,
    View,
    Worker,
    close_all,
    open,
    parse_size,
)
from kvstore.errors import (
    ClosedError,
    DivergenceError,
    Error,
    ForkedError,
    IncompatibleError,
    InvalidArgument,
    LimitError,
    LockedError,
    StoreIOError,
)
from kvstore.types import WeightsFingerprint as Weights

__all__ = [
    "Answers",
    "ArenaRange",
    "Batch",
    "ClosedError",
    "DivergenceError",
    "Error",
    "Explanation",
    "FieldDifference",
    "ForkedError",
    "IncompatibleError",
    "InvalidArgument",
    "Keyed",
    "KeyedLease",
    "KeyedMatch",
    "Lease",
    "LimitError",
    "LockedError",
    "Mirror",
    "Namespace",
    "Plan",
    "Status",
    "Statuses",
    "Store",
    "StoreIOError",
    "Usage",
    "View",
    "Weights",
    "Worker",
    "open",
    "parse_size",
]

# A module inside of an extension module is an attribute until somebody says that it is a module.
sys.modules[f"{_core.__name__}.codec"] = _core.codec
atexit.register(close_all)
