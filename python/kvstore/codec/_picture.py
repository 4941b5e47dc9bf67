"""The picture of `kvstore codec report`."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

from kvstore.codec._rows import Row

# Smallest distance of two labels, in parts of a panel's height.
_GAP = 0.05


def _family(row: Row) -> str:
    return row.preset.split(".")[0].split("_")[0]


def best_by_bits(rows: list[Row]) -> list[Row]:
    """For each half bit, the row with the largest SQNR."""
    best: dict[int, Row] = {}
    for row in rows:
        bits = round(row.bits_per_element * 2)
        if bits not in best or row.sqnr_db > best[bits].sqnr_db:
            best[bits] = row
    return list(best.values())


def spread(heights: list[float], gap: float) -> list[float]:
    """Heights of labels that are at least `gap` apart, in the order of `heights`, each moved up
    from its point as little as that takes."""
    placed = [0.0] * len(heights)
    below = float("-inf")
    for index in sorted(range(len(heights)), key=heights.__getitem__):
        below = max(heights[index], below + gap)
        placed[index] = below
    return placed


def draw(rows: list[Row], path: Path, source: str) -> None:
    """SQNR over bits per element, one panel per data set; the best of each bit width is named.

    Labels stand in a column at the right of their panel, each with a line to its point.
    """
    # A scheme without error has no place on the axis.
    rows = [row for row in rows if math.isfinite(row.sqnr_db)]
    if not rows:
        raise ValueError("--picture: no scheme with an error to draw")
    # Imported by name: it is an extra that the types are checked without.
    importlib.import_module("matplotlib").use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")

    names = list(dict.fromkeys(row.data for row in rows))
    across = 2 if len(names) > 1 else 1
    down = -(-len(names) // across)
    figure, panels = pyplot.subplots(
        down, across, figsize=(7.4 * across, 4.6 * down), sharex=True, sharey=True, squeeze=False
    )
    families = list(dict.fromkeys(_family(row) for row in rows))
    low, high = min(row.sqnr_db for row in rows), max(row.sqnr_db for row in rows)
    margin = max(1.0, 0.12 * (high - low))
    widest = max(row.bits_per_element for row in rows)
    narrowest = min(row.bits_per_element for row in rows)
    column = widest + 0.06 * (widest - narrowest or 1.0)
    for panel, name in zip(panels.flat, names, strict=False):
        mine = [row for row in rows if row.data == name]
        for index, family in enumerate(families):
            points = [row for row in mine if _family(row) == family]
            panel.scatter(
                [row.bits_per_element for row in points],
                [row.sqnr_db for row in points],
                label=family,
                color=f"C{index}",
                zorder=3,
            )
        best = best_by_bits(mine)
        heights = spread([row.sqnr_db for row in best], _GAP * (high - low + 2 * margin))
        for row, height in zip(best, heights, strict=True):
            panel.annotate(
                row.preset,
                (row.bits_per_element, row.sqnr_db),
                xytext=(column, height),
                fontsize=7,
                va="center",
                arrowprops={"arrowstyle": "-", "color": "0.7", "linewidth": 0.6},
            )
        panel.set_title(name)
        panel.grid(alpha=0.3)
        panel.set_ylim(low - margin, high + margin)
        panel.set_xlim(
            narrowest - 0.05 * (widest - narrowest or 1.0),
            widest + 0.45 * (widest - narrowest or 1.0),
        )
    for panel in panels[-1]:
        panel.set_xlabel("bits per element, scales included")
    for line in panels:
        line[0].set_ylabel("SQNR (dB)")
    panels[0][0].legend(loc="upper left", fontsize=8)
    figure.suptitle("Quality of each scheme on bf16 data (best per bit width named)")
    figure.text(0.01, 0.01, source, fontsize=7)
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
