"""What each architecture's cache is made of, byte by byte, and from where a prompt can go on.

The arithmetic is compiled (``kvstore._core``); here are the names, and what reads files and
transformers configurations.
"""

from kvstore._core import (
    Architecture,
    Group,
    Layout,
    ResumePlan,
    architectures,
    keep,
    records,
    resume_plan,
    usage_tokens,
)
from kvstore.layouts.hf import CannotPlace

__all__ = [
    "Architecture",
    "CannotPlace",
    "Group",
    "Layout",
    "ResumePlan",
    "architectures",
    "keep",
    "records",
    "resume_plan",
    "usage_tokens",
]
