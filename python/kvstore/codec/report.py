"""`kvstore codec report [FILE]`: what each scheme costs and loses, as a table and as a picture."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kvstore import codec
from kvstore.codec._picture import draw
from kvstore.codec._rows import Row
from kvstore.codec._tensors import SUFFIXES, from_bf16, read, to_bf16

Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint16]

# One preset per kind of scheme; --all takes every one that fits the rows.
DEFAULT = [
    "fp8_e4m3.static",
    "fp8_e5m2.static",
    "fp8_e4m3.raw_f32.128",
    "fp8_e4m3.ue8m0.128",
    "fp8_e4m3.ue8m0.64",
    "mxfp8_e4m3.rceil",
    "mxfp8_e4m3.floor",
    "mxfp6_e2m3.rceil",
    "mxfp6_e3m2.rceil",
    "mxfp4.floor",
    "mxfp4.even",
    "mxfp4.ceil",
    "mxfp4.rceil",
    "fp4.ue8m0.16",
    "nvfp4",
    "nvfp4.4over6",
    "int8.per_token_head",
    "int8.per_token_head.vllm",
    "int8.per_channel",
    "kivi_k.int4",
    "kivi_v.int4",
    "kivi_k.int2",
    "kivi_v.int2",
]


def gaussian(rng: np.random.Generator, rows: int, cols: int) -> Floats:
    """Independent standard normals."""
    return rng.standard_normal((rows, cols)).astype(np.float32)


def keys(rng: np.random.Generator, rows: int, cols: int) -> Floats:
    """Normals with four channels eight to twenty times as large, as rotated keys have."""
    x = rng.standard_normal((rows, cols))
    outliers = rng.choice(cols, 4, replace=False)
    x[:, outliers] *= rng.uniform(8, 20, 4)
    return x.astype(np.float32)


def values(rng: np.random.Generator, rows: int, cols: int) -> Floats:
    """Student-t with four degrees of freedom, each token at a scale of its own."""
    scale = np.exp(rng.standard_normal((rows, 1)) * 0.5)
    return (rng.standard_t(4, (rows, cols)) * scale).astype(np.float32)


def latent(rng: np.random.Generator, rows: int, cols: int) -> Floats:
    """Normals with channel scales that differ by an order of magnitude, as MLA latents."""
    scale = np.exp(rng.standard_normal((1, cols)) * 1.0)
    return (rng.standard_normal((rows, cols)) * scale).astype(np.float32)


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int, int], Floats]] = {
    "gaussian": gaussian,
    "keys": keys,
    "values": values,
    "latent": latent,
}


def measure(data: str, words: Words, preset: str) -> Row | None:
    """One row, or None where the preset does not fit the shape of the data."""
    found = codec.preset(preset)
    given: dict[str, Any] = {}
    if found.scale == "given":
        given["scale"] = 1.0
    if "global" in found.scale:
        amax = float(np.nanmax(np.abs(from_bf16(words)))) or 1.0
        given["global_scale"] = 2688 / amax if "/" in found.scale else amax / 2688
    try:
        coded = codec.encode(words, preset, dtype="bf16", **given)
    except ValueError:
        return None
    x = from_bf16(words).astype(np.float64)
    back = codec.decode(coded, dtype="fp32").astype(np.float64)
    usable = np.isfinite(x) & np.isfinite(back)
    x, error = x[usable], (back - from_bf16(words))[usable]
    power, noise = float((x**2).sum()), float((error**2).sum())
    sqnr = float("inf") if noise == 0 else 10 * float(np.log10(power / noise)) if power else 0.0
    large = np.abs(x) > 0.01 * np.sqrt((x**2).mean())
    relative = float((np.abs(error[large]) / np.abs(x[large])).mean()) if large.any() else 0.0
    return Row(data, preset, coded.nbytes * 8 / words.size, sqnr, relative)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "file", nargs="?", type=Path, help=f"{', '.join(SUFFIXES)}: floats or bf16 bits"
    )
    parser.add_argument("--tensor", metavar="NAME", help="which one, where FILE holds several")
    parser.add_argument(
        "--dtype", choices=["bf16", "fp16"], help="what 16-bit integers in FILE are"
    )
    parser.add_argument(
        "--distribution",
        choices=[*DISTRIBUTIONS, "all"],
        default="all",
        help="seeded data without FILE (default: all)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--cols", type=int, default=128)
    parser.add_argument("--preset", action="append", help="only these; may be repeated")
    parser.add_argument("--all", action="store_true", help="every preset that fits the rows")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw to a PNG or SVG file")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table as CSV")
    parser.add_argument("--json", action="store_true", help="one object on standard output")


def _data(args: argparse.Namespace) -> Iterator[tuple[str, Words]]:
    if args.file is not None:
        name = args.file.name if args.tensor is None else f"{args.file.name}: {args.tensor}"
        yield name, read(args.file, args.dtype, args.tensor)
        return
    names = list(DISTRIBUTIONS) if args.distribution == "all" else [args.distribution]
    for name in names:
        rng = np.random.default_rng(args.seed)
        yield name, to_bf16(DISTRIBUTIONS[name](rng, args.rows, args.cols))


def run(args: argparse.Namespace) -> int:
    """0: done; 2: wrong use."""
    presets = args.preset or ([p.name for p in codec.presets()] if args.all else DEFAULT)
    rows: list[Row] = []
    lossless: list[dict[str, Any]] = []
    try:
        if args.file is None and args.tensor is not None:
            raise ValueError("--tensor: FILE wanted with it")
        if args.rows < 1 or args.cols < 4:
            raise ValueError(
                f"--rows, --cols: {args.rows}, {args.cols} given, at least 1 and 4 wanted"
            )
        for name in presets:
            codec.preset(name)
        for data, words in _data(args):
            print(f"{data}: {words.shape[0]} rows of {words.shape[1]}", file=sys.stderr)
            rows += [row for preset in presets if (row := measure(data, words, preset))]
            packed = codec.lossless_report(words)
            lossless.append(
                {
                    "data": data,
                    "ratio_bytes": packed.ratio_bytes,
                    "ratio_slots": packed.ratio_slots,
                }
            )
        if args.picture is not None:
            _picture(args, rows)
    except (OSError, ValueError) as error:
        print(f"kvstore codec report: {error}", file=sys.stderr)
        return 2
    if args.out is not None:
        with args.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(Row.__slots__))
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)
    if args.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "lossless": lossless}))
    else:
        print(table(rows, lossless))
    return 0


def _picture(args: argparse.Namespace, rows: list[Row]) -> None:
    source = str(args.file) if args.file else f"kvstore codec report, seed {args.seed}"
    source += f", {args.rows} x {args.cols}" if args.file is None else ""
    try:
        draw(rows, args.picture, f"Source: {source}")
    except ImportError:
        raise ValueError("--picture: matplotlib is not installed; pip install matplotlib") from None


def table(rows: list[Row], lossless: list[dict[str, Any]]) -> str:
    """A Markdown table: presets down, data sets across, SQNR / mean relative error."""
    names = list(dict.fromkeys(row.data for row in rows))
    cells = {(row.preset, row.data): row for row in rows}
    lines = [
        "| preset | bits/element | " + " | ".join(names) + " |",
        "| --- | ---: |" + " ---: |" * len(names),
    ]
    for preset in dict.fromkeys(row.preset for row in rows):
        mine = [cells.get((preset, name)) for name in names]
        bits = next(row.bits_per_element for row in mine if row)
        text = [
            f"{row.sqnr_db:.1f} dB / {100 * row.relative_error:.2f}%" if row else "-"
            for row in mine
        ]
        lines.append(f"| {preset} | {bits:.4g} | " + " | ".join(text) + " |")
    lines.append("")
    for row in lossless:
        lines.append(
            f"lossless (byte planes, zstd-1), {row['data']}: {row['ratio_bytes']:.3f} of the "
            f"bytes, {row['ratio_slots']:.3f} of the slots"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Runs the command by itself."""
    parser = argparse.ArgumentParser(prog="kvstore codec report", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
