"""The pictures of ``kvstore footprint``: bytes per token over the years, stored bytes against the
interval of resume points, reads against context. Each has axes with units and its source."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from io import StringIO
from pathlib import Path
from typing import Any

from kvstore._core import Architecture, architectures

#: Names in the picture of years, and in that of reads.
YEARS = (
    "deepseek-llm-7b",
    "deepseek-llm-67b",
    "deepseek-v2",
    "deepseek-v3",
    "deepseek-v3.2",
    "deepseek-v4-pro",
    "deepseek-v4-flash",
    "deepseek-v4.1-flash",
)
READS = (
    "deepseek-v3",
    "deepseek-v3.2",
    "deepseek-v4-pro",
    "deepseek-v4-flash",
    "deepseek-v4.1-flash",
)
SOURCE = "Source: kvstore footprint, computed from the registry's layouts; formats as named there."


def write_pictures(folder: Path) -> list[Path]:
    """Writes the three pictures as SVG files and gives their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, draw in PICTURES.items():
        path = folder / f"{name}.svg"
        path.write_text(_svg(draw), encoding="utf-8")
        paths.append(path)
    return paths


def svg_pictures() -> dict[str, str]:
    """The pictures as SVG text, by name."""
    return {name: _svg(draw) for name, draw in PICTURES.items()}


def _svg(draw: Callable[[Any, dict[str, Architecture]], None]) -> str:
    try:
        import matplotlib  # type: ignore[import-not-found, unused-ignore]

        matplotlib.use("Agg")
        from matplotlib import pyplot  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise ValueError("pictures need matplotlib: pip install matplotlib") from error
    # a fixed salt and no date: the same numbers give the same file
    with matplotlib.rc_context({"svg.hashsalt": "kvstore", "font.size": 9, "svg.fonttype": "none"}):
        figure, axes = pyplot.subplots(figsize=(8, 4.8), layout="constrained")
        engine: Any = figure.get_layout_engine()
        engine.set(rect=(0, 0.03, 1, 0.97))  # room for the source line
        draw(axes, {a.name: a for a in architectures()})
        axes.grid(True, which="major", alpha=0.3)
        figure.text(0.01, 0.002, SOURCE, fontsize=6, color="0.35")
        out = StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
        pyplot.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :]


def _by_year(axes: Any, known: dict[str, Architecture]) -> None:
    others = [
        a
        for a in known.values()
        if a.released and not a.counterfactual and a.family != "DeepSeek" and a.name != "nsa-27b"
    ]
    points = [(date.fromisoformat(a.released), float(a.layout().bytes_per_token())) for a in others]
    shown = [(day, size) for day, size in points if size > 0]
    axes.scatter(*zip(*shown, strict=True), s=14, color="0.7", label="other models")
    chain = [known[name] for name in YEARS]
    days = [date.fromisoformat(a.released) for a in chain]
    sizes = [float(a.layout().bytes_per_token()) for a in chain]
    axes.plot(days, sizes, marker="o", color="tab:blue", label="DeepSeek")
    below = {"deepseek-llm-67b", "deepseek-v4-flash"}  # released with their neighbours above
    for architecture, day, size in zip(chain, days, sizes, strict=True):
        label = f"{architecture.title.split(',')[0].removeprefix('DeepSeek ')}, {size:,.0f} B"
        offset = (6, -12) if architecture.name in below else (6, 6)
        offset = (-50, 8) if architecture.name == chain[-1].name else offset
        axes.annotate(label, (day, size), textcoords="offset points", xytext=offset, fontsize=7)
    axes.margins(x=0.12, y=0.08)
    axes.set(
        yscale="log",
        xlabel="released",
        ylabel="cache bytes per token (logical, default form)",
        title="Cache per token, 2023 to 2026",
    )
    axes.legend(loc="lower left", fontsize=7)


def _by_interval(axes: Any, known: dict[str, Architecture]) -> None:
    intervals = [2**i for i in range(7, 18)]
    lines = [
        ("deepseek-v4-flash", "none", "V4-Flash: entries + window"),
        ("deepseek-v4-flash", "engine", "V4-Flash: engine-style tails"),
        ("deepseek-v4-pro", "none", "V4-Pro: entries + window"),
        ("deepseek-v4-pro", "engine", "V4-Pro: engine-style tails"),
    ]
    for name, tails, label in lines:
        layout = known[name].layout()
        stored = [float(layout.persistent_per_token(p, tails=tails)) for p in intervals]
        axes.plot(intervals, stored, marker=".", label=label)
    v41 = float(known["deepseek-v4.1-flash"].layout().bytes_per_token())
    axes.axhline(v41, color="black", label=f"V4.1-Flash: entries only, {v41:g}")
    axes.axhline(48_068, color="0.5", linestyle=":", label="V3.2: 48,068")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="tokens between resume points",
        ylabel="stored bytes per token",
        title="What is stored, against the interval of resume points",
    )
    axes.legend(fontsize=7)


def _by_context(axes: Any, known: dict[str, Architecture]) -> None:
    contexts = [2**i for i in range(10, 21)]
    for name in READS:
        layout = known[name].layout()
        label = f"{known[name].title.split(',')[0]} ({layout.form})"
        reads = [layout.read_bytes(n) / 1e9 for n in contexts]
        axes.plot(contexts, reads, marker=".", label=label)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="tokens of context",
        ylabel="cache bytes read per decode step (GB)",
        title="Reads per decode step",
    )
    axes.legend(fontsize=7)


PICTURES: dict[str, Callable[[Any, dict[str, Architecture]], None]] = {
    "bytes-per-token": _by_year,
    "stored-by-interval": _by_interval,
    "reads-by-context": _by_context,
}
