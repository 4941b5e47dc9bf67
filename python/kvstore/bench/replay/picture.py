"""The report as a picture: error by distance and by cut, and cost by context."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from kvstore.bench.replay.page import over, subject

__all__ = ["draw"]


def draw(report: dict[str, Any], path: Path) -> None:
    """Writes three panels to a PNG or SVG file. ValueError without matplotlib."""
    try:
        # Imported by name: it is an extra that the types are checked without.
        importlib.import_module("matplotlib").use("Agg")
        pyplot: Any = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise ValueError("--picture: matplotlib is not installed; pip install matplotlib") from None
    figure, panels = pyplot.subplots(1, 3, figsize=(16, 4.8), layout="constrained")
    figure.get_layout_engine().set(rect=(0, 0.03, 1, 0.97))  # room for the source line
    _by_distance(panels[0], report)
    _by_cut(panels[1], report)
    _by_context(panels[2], report)
    for axes in panels:
        axes.grid(True, which="major", alpha=0.3)
        axes.legend(fontsize=7)
    # between the lines
    panels[1].legend(fontsize=7, loc="center right", bbox_to_anchor=(1, 0.36))
    panels[2].legend(fontsize=6, loc="lower right", bbox_to_anchor=(1, 0.12))
    source = f"Source: kvstore bench replay, {report['made_with']}; cost: plans at true geometry."
    figure.text(0.01, 0.002, source, fontsize=6, color="0.35")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _by_distance(axes: Any, report: dict[str, Any]) -> None:
    merged = over(report["error"], lambda row: (subject(row), row["first"], row["end"]))
    for name in dict.fromkeys(name for name, _, _ in merged):
        points = [
            ((first + end) / 2, row["kl"]) for (n, first, end), row in merged.items() if n == name
        ]
        axes.plot(*zip(*points, strict=True), marker=".", label=name)
    axes.axvline(128, color="0.5", linestyle=":", label="a window behind the cut")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="tokens behind the cut",
        ylabel="mean KL(exact || replayed), nats",
        title="Error of a bounded replay by distance",
    )


def _by_cut(axes: Any, report: dict[str, Any]) -> None:
    near = [row for row in report["error"] if row["end"] <= 128]
    merged = over(near, lambda row: (subject(row), row["cut"]))
    for name in dict.fromkeys(name for name, _ in merged):
        points = [(cut, row["kl"]) for (n, cut), row in merged.items() if n == name]
        axes.plot(*zip(*points, strict=True), marker=".", label=name)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="tokens before the cut",
        ylabel="mean KL over the 128 tokens behind it, nats",
        title="Error of a bounded replay by cut position",
    )


def _by_context(axes: Any, report: dict[str, Any]) -> None:
    labels = {
        "deepseek-v4.1-flash": ("V4.1-Flash", "-"),
        "deepseek-v4-flash": ("V4-Flash", "--"),
    }
    for name, (title, line) in labels.items():
        rows = [row for row in report["planned"] if row["architecture"] == name]
        for mode in dict.fromkeys(row["mode"] for row in rows):
            found = [row for row in rows if row["mode"] == mode]
            stored = found[0]["stored_bytes"]
            axes.plot(
                [row["cut"] for row in found],
                [row["recompute_layer_tokens"] for row in found],
                linestyle=line,
                marker=".",
                label=f"{title}, {mode.replace('_', ' ')}: {stored:,} B per resume point",
            )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="stored tokens",
        ylabel="layer-tokens to compute before the first logits",
        title="What a resume computes, and what it needs stored",
    )
