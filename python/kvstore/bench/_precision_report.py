"""The tables of `kvstore bench precision`, their pictures, and their part of docs/replay.md."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

from kvstore.bench._precision_cache import CacheRow
from kvstore.bench._precision_index import PICKS, IndexRow
from kvstore.footprint.table import Table

BEGIN = "<!-- precision: `kvstore bench precision --document docs/replay.md` makes what follows -->"
END = "<!-- precision: end -->"
SOURCE = "Source: kvstore bench precision."

_CACHE = """## What fewer bits in the stored cache lose

The built-in model, {windows} pieces of Python's standard library that it was not trained on. Of
each the first {prefix} bytes (a byte is a token) are cached, stored in the format of a row, and
the next {following} are foretold over what comes back, against the same over the bf16 cache.
Its cache has a latent of 64 values and a rope key of 32 per token and layer: where a row does
not say "rope too", the rope key stays bf16, as in DeepSeek's records.

![Bits of the stored prefix against what they cost](img/precision-cache.svg)

{table}
Read it with its error: one prefix costs more or less than another. Formats that shrink values
(`int8 truncated`, `MXFP4 floor`) can even gain bits per byte: smaller keys flatten the attention,
which happens to suit this model over long prefixes. That is no fidelity. *Divergence* (how far the
probabilities move, in thousandths of a bit per byte) has no such luck and ranks the formats. What
it says here: quantise the latent before the rope key (fp8
for the latent alone moves {fp8} of these, for the rope key as well {fp8_rope}; MXFP4 {fp4} and
{fp4_rope}), and of two formats with the same bits take the one with the finer scale. The model
is small (2 million parameters) and the text is code; a large one may lose more or less.
"""

_INDEX = """## What a sparse indexer picks over quantised index keys

The score of the lightning indexer (arXiv 2512.02556: over 64 heads, weight x ReLU(query .
key)), keys of 128 values, {queries} queries a set, {entries} entries. *Recall* is the share of
the entries picked over bf16 keys that are picked over the quantised ones; *score kept* weighs
them by their score. The last column quantises the queries as well. *rotated* is after the
Hadamard rotation of keys and queries that DeepSeek's kernels apply.

No trained index keys are public in this form, so the sets are made: `normal` has no structure
at all, `outliers` four large channels, `topics` keys around 256 centres that queries ask for,
and `demo` are the built-in model's own records and queries ({demo} tokens, 3 heads of 96
values, weights of 1).

![Recall by format, set and number of picks](img/precision-index.svg)

{table}
Picks at {picks}, rotated: fp8 {fp8_low}% to {fp8_high}%, MXFP4 {fp4_low}% to {fp4_high}%. Even
a second rounding to bf16 (the rows `bf16`, rotated) changes up to {bf16}% of the picks, because
many scores lie close to the last one picked. What is missed lies there as well: with MXFP4
{kept_low}% to {kept_high}% of the score is kept. The rotation helps MXFP4, whose scale spans 32
values, where channels stand out (`outliers`, `demo`); without structure it changes nothing.

### The scores themselves in bf16

The same sets, all sizes: scores rounded from float32 to bf16 before the picks are made, over
bf16 keys and over MXFP4 keys and queries.

{scores}
**Against the 99.7% of the paper.** The founding paper gives 99.7% top-k recall for the indexer
path of V4 going from FP32 to BF16, with a selector twice as fast. Rounding the scores to bf16
gives {score_low}% to {score_high}% here, over 4-bit keys as well as over bf16 ones: a figure of
that size needs no trained model, it follows from 8 bits of mantissa and from how densely the
scores lie. It is *not* the recall of 4-bit keys, as some summaries have it: those cost
{lost_low}% to {lost_high}% of the picks in the table above. V4 is trained with 4-bit keys
(quantisation-aware), which is not reproduced here and cannot be without its weights; these sets
say what happens to keys that were not trained for it.
"""


def cache_table(rows: list[CacheRow]) -> Table:
    """What each scheme costs and loses; millibits per byte."""
    table = Table(
        "cache",
        "What fewer bits in the stored cache lose",
        [
            "stored_as",
            "bytes_per_token",
            "bits_per_element",
            "bits_per_byte",
            "added_mbit",
            "standard_error_mbit",
            "divergence_mbit",
            "same_first_choice_%",
            "note",
        ],
    )
    for row in rows:
        table.add(
            stored_as=row.scheme,
            bytes_per_token=row.bytes_per_token,
            bits_per_element=row.bits_per_element,
            bits_per_byte=row.bits_per_byte,
            added_mbit=row.added * 1000,
            standard_error_mbit=row.added_error * 1000,
            divergence_mbit=row.divergence * 1000,
            **{"same_first_choice_%": row.top1 * 100},
            note=row.note,
        )
    return table


def index_table(rows: list[IndexRow]) -> Table:
    """Recall of each format on each set: one line for all numbers of picks."""
    columns = [f"recall_at_{picks}_%" for picks in PICKS]
    most = PICKS[-1]
    rest = [f"worst_at_{most}_%", f"score_kept_at_{most}_%", f"queries_too_at_{most}_%"]
    head = ["set", "entries", "format", "bytes_per_key", "rotated", *columns, *rest]
    table = Table("index", "What a sparse indexer picks over quantised index keys", head)
    lines: dict[tuple[Any, ...], dict[int, IndexRow]] = {}
    too: dict[tuple[Any, ...], IndexRow] = {}
    for row in rows:
        key = (row.data, row.entries, row.format, row.rotated)
        if row.queries == "bf16":
            lines.setdefault(key, {})[row.picks] = row
        elif row.picks == most:
            too[key] = row
    for key, by_picks in lines.items():
        last = by_picks[most]
        cells: dict[str, Any] = {f"recall_at_{p}_%": r.recall * 100 for p, r in by_picks.items()}
        cells[rest[0]], cells[rest[1]] = last.worst * 100, last.mass * 100
        cells[rest[2]] = too[key].recall * 100 if key in too else None
        table.add(
            set=last.data,
            entries=last.entries,
            format=last.format,
            bytes_per_key=last.key_bytes,
            rotated="yes" if last.rotated else "no",
            **cells,
        )
    return table


def scores_table(rows: list[IndexRow]) -> Table:
    """Recall of picks by bf16 scores against picks by float32 scores over the same keys."""
    columns = [f"recall_at_{picks}_%" for picks in PICKS]
    worst = f"worst_at_{PICKS[-1]}_%"
    table = Table("scores", "Scores in bf16", ["set", "entries", "keys", *columns, worst])
    lines: dict[tuple[Any, ...], dict[int, IndexRow]] = {}
    for row in rows:
        lines.setdefault((row.data, row.entries, row.format), {})[row.picks] = row
    for (data, entries, keys), by_picks in lines.items():
        cells: dict[str, Any] = {f"recall_at_{p}_%": r.recall * 100 for p, r in by_picks.items()}
        cells[worst] = by_picks[PICKS[-1]].worst * 100
        table.add(set=data, entries=entries, keys=keys, **cells)
    return table


def document(
    cache: list[CacheRow], index: list[IndexRow], scores: list[IndexRow], about: dict[str, int]
) -> str:
    """The generated part of docs/replay.md, between its marks. The largest sets only."""
    shown = [row for row in index if row.entries == _largest(index, row.data)]
    by_scheme = {row.scheme: f"{row.divergence * 1000:.3f}" for row in cache}
    text = _CACHE.format(
        windows=about["windows"],
        prefix=f"{about['prefix']:,}",
        following=f"{about['following']:,}",
        table=cache_table(cache).markdown(),
        fp8=by_scheme["fp8 2^n per 64"],
        fp8_rope=by_scheme["fp8 2^n per 64, rope too"],
        fp4=by_scheme["MXFP4 rceil"],
        fp4_rope=by_scheme["MXFP4 rceil, rope too"],
    )
    fp4, fp8, bf16 = (_picked(shown, name) for name in ("MXFP4", "fp8, 2^n scale", "bf16"))
    text += "\n" + _INDEX.format(
        queries=about["queries"],
        entries=f"{max(row.entries for row in index):,}",
        demo=f"{_largest(index, 'demo'):,}",
        table=index_table(shown).markdown(),
        picks=f"{PICKS[-1]:,}",
        fp4_low=f"{min(r.recall for r in fp4) * 100:.1f}",
        fp4_high=f"{max(r.recall for r in fp4) * 100:.1f}",
        fp8_low=f"{min(r.recall for r in fp8) * 100:.1f}",
        fp8_high=f"{max(r.recall for r in fp8) * 100:.1f}",
        bf16=f"{(1 - min(r.recall for r in bf16)) * 100:.1f}",
        scores=scores_table(scores).markdown(),
        score_low=f"{min(r.recall for r in scores) * 100:.1f}",
        score_high=f"{max(r.recall for r in scores) * 100:.1f}",
        lost_low=f"{(1 - max(r.recall for r in fp4)) * 100:.1f}",
        lost_high=f"{(1 - min(r.recall for r in fp4)) * 100:.1f}",
        kept_low=f"{min(r.mass for r in fp4) * 100:.1f}",
        kept_high=f"{max(r.mass for r in fp4) * 100:.1f}",
    )
    return f"{BEGIN}\n\n{text}\n{END}\n"


def _largest(rows: list[IndexRow], data: str) -> int:
    return max(row.entries for row in rows if row.data == data)


def _picked(rows: list[IndexRow], name: str) -> list[IndexRow]:
    return [
        r for r in rows if (r.format, r.queries, r.picks) == (name, "bf16", PICKS[-1]) and r.rotated
    ]


def around(path: Path) -> tuple[str, str]:
    """What stands before and after the generated part; ValueError for a document without one."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END + "\n")
    if not (begin and end):
        raise ValueError(f"--document {path}: it has no part between {BEGIN!r} and {END!r}")
    return before, after


def draw(folder: Path, cache: list[CacheRow], index: list[IndexRow]) -> list[Path]:
    """Both pictures as SVG; ValueError without matplotlib."""
    try:
        import matplotlib  # type: ignore[import-not-found, unused-ignore]

        matplotlib.use("Agg")
        from matplotlib import pyplot  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise ValueError("--pictures needs matplotlib: pip install matplotlib") from error
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    # a fixed salt and no date: the same numbers give the same file
    with matplotlib.rc_context({"svg.hashsalt": "kvstore", "font.size": 9, "svg.fonttype": "none"}):
        for name, figure in (
            ("precision-cache", _draw_cache(pyplot, cache)),
            ("precision-index", _draw_index(pyplot, index)),
        ):
            figure.text(0.01, 0.002, SOURCE, fontsize=6, color="0.35")
            out = StringIO()
            figure.savefig(out, format="svg", metadata={"Date": None})
            pyplot.close(figure)
            path = folder / f"{name}.svg"
            text = out.getvalue()
            path.write_text(text[text.index("<svg") :], encoding="utf-8")
            paths.append(path)
    return paths


def _draw_cache(pyplot: Any, rows: list[CacheRow]) -> Any:
    figure, axes = pyplot.subplots(figsize=(8, 4.8), layout="constrained")
    figure.get_layout_engine().set(rect=(0, 0.03, 1, 0.97))
    schemes: dict[str, list[CacheRow]] = {}
    for row in (row for row in rows if row.divergence):
        schemes.setdefault(row.scheme.removesuffix(", rope too"), []).append(row)
    for number, (name, both) in enumerate(schemes.items()):
        sizes, costs = [r.bytes_per_token for r in both], [r.divergence * 1000 for r in both]
        colour = pyplot.get_cmap("tab20")(number)
        axes.plot(sizes, costs, color=colour, linewidth=0.7, label=name)
        for row, marker in zip(both, "os", strict=True):
            axes.plot(row.bytes_per_token, row.divergence * 1000, marker, color=colour)
    axes.set(
        yscale="log",
        xlabel="bytes per token in the store (bf16: 960)",
        ylabel="divergence from bf16 (thousandths of a bit per byte)",
        title="Bits of the stored prefix against what they cost",
    )
    axes.margins(x=0.1)
    axes.grid(True, which="major", alpha=0.3)
    title = "circle: rope key in bf16\nsquare: quantised too"
    axes.legend(fontsize=7, title=title, title_fontsize=7)
    return figure


def _draw_index(pyplot: Any, rows: list[IndexRow]) -> Any:
    sets = list(dict.fromkeys(row.data for row in rows))
    figure, panels = pyplot.subplots(
        1, len(sets), figsize=(2.6 * len(sets), 4.2), sharey=True, layout="constrained"
    )
    figure.get_layout_engine().set(rect=(0, 0.04, 1, 0.96))
    for panel, name in zip(panels, sets, strict=True):
        entries = _largest(rows, name)
        mine = [r for r in rows if (r.data, r.entries, r.queries) == (name, entries, "bf16")]
        for colour, form in enumerate(dict.fromkeys(r.format for r in rows)):
            for turned, line in ((True, "-"), (False, ":")):
                points = [r for r in mine if r.format == form and r.rotated is turned]
                panel.plot(
                    [r.picks for r in points],
                    [r.recall * 100 for r in points],
                    line,
                    marker=".",
                    color=f"C{colour}",
                    label=form if turned else None,
                )
        panel.set(title=f"{name}, {entries:,}", xlabel="entries picked", xticks=PICKS)
        panel.tick_params(axis="x", labelsize=7)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("recall of the picks over bf16 keys (%)")
    panels[-1].legend(fontsize=7, title="rotated: solid, not: dotted", title_fontsize=7)
    return figure
