"""One HTML file with all tables and pictures, without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from html import escape

from kvstore.footprint.pictures import svg_pictures
from kvstore.footprint.table import Table, human

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 12px }
th, td { padding: .25em .6em; border-bottom: 1px solid #ddd; text-align: left }
td.n, th.n { text-align: right }
div.wide { overflow-x: auto } p.note { color: #555; font-size: 12px; margin: .3em 0 }
svg { max-width: 100%; height: auto }
"""


def html_report(tables: Sequence[Table]) -> str:
    """The report as one self-contained page."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>kvstore footprint</title>",
        f"<style>{_STYLE}</style><h1>What a cached token costs</h1>",
    ]
    parts += [f"<figure>{svg}</figure>" for svg in svg_pictures().values()]
    parts += [_table(table) for table in tables]
    return "\n".join(parts) + "\n</html>\n"


def _table(table: Table) -> str:
    numeric = {
        column
        for column in table.columns
        if all(isinstance(cell, int | float | Fraction | None) for cell in table.column(column))
    }

    def cell(tag: str, column: str, text: str) -> str:
        kind = " class=n" if column in numeric else ""
        return f"<{tag}{kind}>{escape(text)}</{tag}>"

    head = "".join(cell("th", column, column.replace("_", " ")) for column in table.columns)
    rows = [
        "<tr>" + "".join(cell("td", c, human(row.get(c))) for c in table.columns) + "</tr>"
        for row in table.rows
    ]
    notes = "".join(f"<p class=note>{escape(note)}</p>" for note in table.notes)
    body = "\n".join(rows)
    rows_of = f"<table><tr>{head}</tr>\n{body}</table>"
    return f"<h2>{escape(table.title)}</h2><div class=wide>{rows_of}</div>{notes}"
