"""The report as tables of a page: text between two marks, which the command alone writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from kvstore.footprint.table import Table

__all__ = ["BEGIN", "END", "document", "over", "put_block", "subject"]

BEGIN = "<!-- kvstore bench replay: begin -->"
END = "<!-- kvstore bench replay: end -->"

Row = dict[str, Any]

_TITLES = {"deepseek-v4.1-flash": "V4.1-Flash", "deepseek-v4-flash": "V4-Flash"}
_LAYERS = {
    ("deepseek-v4.1-flash", "toy"): 12,
    ("deepseek-v4.1-flash", "true"): 40,
    ("deepseek-v4-flash", "toy"): 6,
}
_MODES = {
    "plain": "plain, windows read",
    "checkpoint": "checkpoint read",
    "exact_replay": "exact replay",
    "bounded_replay": "bounded replay",
    "cold": "cold prefill",
}


def put_block(path: Path, text: str) -> None:
    """Writes the text between the page's marks. ValueError where it has none."""
    page = path.read_text(encoding="utf-8")
    if BEGIN not in page or END not in page:
        raise ValueError(f"{path}: no lines {BEGIN} and {END}")
    head, rest = page.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    path.write_text(f"{head}{BEGIN}\n\n{text}\n{END}{tail}", encoding="utf-8")


def document(report: Row) -> str:
    """All tables as Markdown."""
    made = [_weights(report), _distance(report), _cuts(report), _exact(report), _planned(report)]
    made += [_cost(report), _families(report), _drafts(report)]
    shown = [table for table in made if table.rows]
    return "\n".join(f"### {table.title}\n\n{table.markdown()}" for table in shown)


def subject(row: Row) -> str:
    """A figure's model in a few words."""
    title, layers = _TITLES[row["architecture"]], _LAYERS[row["architecture"], row["geometry"]]
    rows = "" if row["form"] == "native" else f", {row['form']} rows"
    return f"{title}, {layers} layers, {row['weights']}{rows}"


def over(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, Row]:
    """Error rows with the same key as one: means by token, maxima of maxima."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {found: _merged(group) for found, group in groups.items()}


def _merged(rows: Sequence[Row]) -> Row:
    tokens = sum(row["tokens"] for row in rows)
    means = ("difference", "kl", "agreement", "bits_exact", "bits_replayed")
    merged = {name: sum(row[name] * row["tokens"] for row in rows) / tokens for name in means}
    merged |= {name: max(row[name] for row in rows) for name in ("difference_max", "kl_max")}
    return merged | {"tokens": tokens}


_ERROR = (
    "tokens",
    "mean_difference",
    "largest",
    "mean_KL",
    "largest_KL",
    "same_first_choice",
    "bits_per_byte,_exact",
    "replayed",
)


def _error_cells(row: Row) -> dict[str, Any]:
    return {
        "tokens": row["tokens"],
        "mean_difference": f"{row['difference']:.2g}",
        "largest": f"{row['difference_max']:.2g}",
        "mean_KL": f"{row['kl']:.1e}",
        "largest_KL": f"{row['kl_max']:.1e}",
        "same_first_choice": f"{100 * row['agreement']:.1f}%",
        "bits_per_byte,_exact": f"{row['bits_exact']:.3f}",
        "replayed": f"{row['bits_replayed']:.3f}",
    }


def _weights(report: Row) -> Table:
    table = Table("weights", "Weights", ["model", "parameters", "training_steps", "bits_per_byte"])
    for row in report["weights"]:
        table.add(
            model=f"{_TITLES[row['architecture']]}, 12 layers, trained",
            parameters=row["parameters"],
            training_steps=row["steps"],
            bits_per_byte=row["bits_per_byte"],
        )
    table.notes.append(
        "On text that training never saw, in passes of 2,048 tokens (a uniform guess takes 8). "
        f"Measured with {report['made_with']}."
    )
    return table


def _distance(report: Row) -> Table:
    columns = ["model", "tokens_behind_the_cut", *_ERROR]
    table = Table("distance", "Error of a bounded replay by distance from the cut", columns)
    for (name, first, end), row in over(
        report["error"], lambda row: (subject(row), row["first"], row["end"])
    ).items():
        where = f"{first}" if end == first + 1 else f"{first} to {end - 1}"
        table.add(model=name, tokens_behind_the_cut=where, **_error_cells(row))
    table.notes.append(
        "Differences of logits are over the standard deviation of the exact ones; KL is "
        "KL(exact || replayed) in nats; bits are those of the text that follows. All cuts and "
        "texts together."
    )
    return table


def _cuts(report: Row) -> Table:
    columns = ["model", "cut_at", *_ERROR]
    title = "Error of a bounded replay by cut position, the 128 tokens behind it"
    table = Table("cuts", title, columns)
    near = [row for row in report["error"] if row["end"] <= 128]
    for (name, cut), row in over(near, lambda row: (subject(row), row["cut"])).items():
        table.add(model=name, cut_at=cut, **_error_cells(row))
    return table


def _exact(report: Row) -> Table:
    title = "Exact modes: cuts whose logits have the live cache's bits"
    table = Table("exact", title, ["model", "mode", "cuts", "equal"])
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in report["exact"]:
        groups.setdefault((subject(row), row["mode"]), []).append(row)
    for (name, mode), rows in groups.items():
        cuts, equal = (sum(row[key] for row in rows) for key in ("cuts", "equal"))
        table.add(model=name, mode=_MODES[mode], cuts=cuts, equal=equal)
    return table


def _planned(report: Row) -> Table:
    columns = ["model", "stored_tokens", "mode", "tokens", "layer-tokens", "bytes_read"]
    columns.append("bytes_stored_per_resume_point")
    table = Table("planned", "Cost at true geometry, as the store plans it", columns)
    for row in report["planned"]:
        cells = [_TITLES[row["architecture"]], row["cut"], _MODES[row["mode"]]]
        names = ("recompute_tokens", "recompute_layer_tokens", "read_bytes", "stored_bytes")
        cells += [row[name] for name in names]
        table.add(**dict(zip(columns, cells, strict=True)))
    table.notes.append(
        "One token more than the stored ones is asked for. Layer-tokens of V4.1's replays count "
        "its decoder on the last 128 tokens only, as it is served. Where a mode is absent the "
        "prompt is not longer than its replay."
    )
    return table


def _cost(report: Row) -> Table:
    columns = ["model", "stored_tokens", "mode", "tokens", "layer-tokens", "bytes_read"]
    columns += ["bytes_stored", "wall_s", "of_cold", "CPU_s", "of_cold_(CPU)"]
    table = Table("cost", "Cost measured: from the prompt to its first logits", columns)
    for row in report["cost"]:
        cells = [subject(row), row["cut"], _MODES[row["mode"]]]
        names = ("recompute_tokens", "recompute_layer_tokens", "read_bytes", "stored_bytes")
        cells += [row[name] for name in names]
        cells += [
            f"{row[name]:.3g} ({row[f'{name}_q1']:.3g}-{row[f'{name}_q3']:.3g})"
            for name in ("wall_seconds", "wall_ratio", "cpu_seconds", "cpu_ratio")
        ]
        table.add(**dict(zip(columns, cells, strict=True)))
    rounds = max((row["rounds"] for row in report["cost"]), default=0)
    table.notes.append(
        f"Median and quartiles of {rounds} rounds, each of which takes all modes once; ratios are "
        "to the same round's cold prefill. Other work on the machine makes wall time longer. The "
        "reference model runs its decoder on every token."
    )
    return table


def _families(report: Row) -> Table:
    columns = ["family", "mode", "stored_tokens", "tokens", "layer-tokens", "cold", "bytes_read"]
    columns += ["bytes_not_stored", "live_bits"]
    table = Table("families", "Exact replay in transformers: toys of each family", columns)
    for row in report["families"]:
        cells = [row["family"], _MODES[row["mode"]], row["usable"]]
        names = ("recompute_tokens", "recompute_layer_tokens", "cold_layer_tokens", "read_bytes")
        cells += [row[name] for name in (*names, "spared_bytes")]
        cells.append("equal" if row["equal_bits"] else "differ")
        table.add(**dict(zip(columns, cells, strict=True)))
    table.notes.append(
        "Float32. Tokens are the plan's. What is computed begins at the block end before, where "
        "the first computation cut its chunks: up to 63 tokens more (127 in deepseek_v4)."
    )
    return table


def _drafts(report: Row) -> Table:
    columns = ["seed", "prompt", "restored_at", "drafts", "right,_live", "right,_restored"]
    columns.append("tokens")
    table = Table("drafts", "V3's drafts after a restore", columns)
    for row in report["drafts"]:
        names = ("seed", "prompt", "cut", "drafts", "right_live", "right_restored")
        cells = [row[name] for name in names] + ["same" if row["same_tokens"] else "differ"]
        table.add(**dict(zip(columns, cells, strict=True)))
    return table
