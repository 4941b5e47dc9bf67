"""The document: every table with its basis, then the corrections, then what lies outside."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from importlib.resources import files
from typing import Any

from kvstore._core import architectures
from kvstore.footprint import tables as make
from kvstore.footprint.lineage import rebuilt
from kvstore.footprint.lineage.corrections import corrections
from kvstore.footprint.measured.record import from_rows, measured_table
from kvstore.footprint.table import Table

_HEAD = """# From 389,120 bytes to 890: the record

This file is made by `kvstore footprint --lineage docs/lineage.md`; numbers are computed from the
layouts of the registry, and one table counts them on disk (`make measured`). The founding paper
("From 390 KB to 890 Bytes") came without its tables. They are rebuilt here, each on a stated basis.
kB, MB and GB are powers of ten, KiB and GiB of two.

![Cache per token, 2023 to 2026](img/bytes-per-token.svg)

Four bases must not be mixed: *logical* (the format's own bytes), *padded* (in an engine's pages),
*persistent* (stored, with resume state), *read* (touched in one decode step).
"""


def _record() -> dict[str, list[dict[str, Any]]]:
    text = files("kvstore.footprint.lineage").joinpath("record.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _words(name: str, title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(name, title, list(rows[0]))
    for row in rows:
        table.add(**row)
    return table


def measured() -> Table:
    """What `kvstore footprint --all --measured` counted when it last ran (`make measured`)."""
    text = files("kvstore.footprint.lineage").joinpath("measured.json").read_text(encoding="utf-8")
    table = measured_table(from_rows(json.loads(text)["rows"]))
    return replace(table, columns=[c for c in table.columns if c not in table.only_in_files])


def lineage_tables() -> list[Table]:
    """Every table of the document, in its order: computed, but for `measured`."""
    known = {a.name: a for a in architectures()}
    chain = [name for name in rebuilt.CHAIN if name != "deepseek-v4-pro"]
    record = _record()
    stored = [(known[n], known[n].layout()) for n in ("deepseek-v4-flash", "deepseek-v4-pro")]
    return [
        rebuilt.master(),
        rebuilt.reads(),
        rebuilt.price_record(),
        _words("timeline", "The timeline (15.4)", record["timeline"]),
        rebuilt.configurations(),
        rebuilt.attention_configuration(),
        make.axes_table([(known[name], known[name].layout()) for name in chain]),
        rebuilt.baseline(),
        _words("modes", "Two modes of MLA, three of CSA2 (5.4, 14.2)", record["mode"]),
        rebuilt.v3_arithmetic(),
        rebuilt.two_caches(),
        make.persistent_table(stored),
        measured(),
        rebuilt.mechanisms(),
        corrections(),
        _words("facts", "Facts", record["fact"]),
        _words("outside", "Outside a cache store", record["outside"]),
        _words("glossary", "Glossary (16.3)", record["word"]),
    ]


#: Pictures that stand before a table; `kvstore footprint --pictures docs/img` makes them.
_PICTURES = {"reads": "reads-by-context", "persistent": "stored-by-interval"}


def lineage_document() -> str:
    """The whole document as Markdown."""
    parts = [_HEAD]
    for table in lineage_tables():
        if table.name == "corrections":
            parts.append("## Where the paper differs from the arithmetic and the sources\n")
        if table.name in _PICTURES:
            picture = _PICTURES[table.name]
            parts.append(f"![{table.title}](img/{picture}.svg)\n")
        level = "###" if table.name in {"corrections", "facts"} else "##"
        parts.append(f"{level} {table.title}\n\n{table.markdown()}")
    return "\n".join(parts)
