"""`kvstore bench codec`: one core's conversions beside memcpy and beside other libraries.

Each figure is a ratio: thread CPU time of a memcpy of the bf16 bytes over that of the conversion,
taken in pairs one after the other, median and quartiles. More than 1 is faster than memcpy.

A streamed decode has a ceiling: its memory traffic without arithmetic, measured in the same run.
Each line of half (8-bit codes) or a quarter (4-bit codes) of the bf16 bytes is read once and
written past the cache twice or four times.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kvstore import codec
from kvstore.bench import _codec_peers as peers
from kvstore.codec._arrays import empty_aligned
from kvstore.codec._native import native

Words = npt.NDArray[np.uint16]
Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Row:
    """One ratio."""

    bench: str
    # Bytes of bf16.
    size: int
    ratio: float
    q1: float
    q3: float
    pairs: int
    path: str
    bar: float | None
    met: bool | None
    # The ratio of the same memory traffic without arithmetic, for streamed decodes.
    ceiling: float | None = None


@dataclass(frozen=True, slots=True)
class Conversion:
    """A preset with its bars: AVX-512 levels, and AVX2 alone."""

    preset: str
    cols: int
    encode: float
    encode_avx2: float = 0.5
    scale: float | None = None


CONVERSIONS = [
    Conversion("fp8_e4m3.ue8m0.128", 512, 0.75),
    Conversion("fp8_e4m3.ue8m0.64", 512, 0.75),
    Conversion("fp8_e4m3.ue8m0.32", 512, 0.75),
    Conversion("mxfp4.rceil", 512, 0.75),
    Conversion("fp8_e4m3.raw_f32.128", 512, 0.60),
    Conversion("fp8_e4m3.static", 512, 0.60, scale=0.01),
    Conversion("nvfp4", 512, 0.50),
    Conversion("int8.per_token_head.vllm", 128, 0.70),
]
DECODE_BAR = 1.0
# Where the memory cannot give as much, STREAM_SHARE of the ceiling.
STREAM_BAR = 2.0
STREAM_SHARE = 0.95
# Words that one byte of codes becomes, in bytes: 8-bit and 4-bit codes.
EXPANSIONS = (2, 4)


def cpu_time(work: Work) -> int:
    """Thread CPU nanoseconds of one call."""
    start = time.thread_time_ns()
    work()
    return time.thread_time_ns() - start


def ratios(
    reference: Work, work: Work, pairs: int, share: float = 1.0
) -> tuple[float, float, float]:
    """Median and quartiles of reference over work, where work does a `share` of the size."""
    work()
    reference()
    found = []
    for index in range(pairs):
        # Alternating order, so that neither always runs behind the other.
        if index % 2:
            done, copied = cpu_time(work), cpu_time(reference)
        else:
            copied, done = cpu_time(reference), cpu_time(work)
        found.append(copied * share / max(done, 1))
    q1, median, q3 = np.quantile(found, [0.25, 0.5, 0.75])
    return float(median), float(q1), float(q3)


def source(size: int) -> Words:
    """Seeded normals as bf16 bits, `size` bytes."""
    rng = np.random.default_rng(0)
    x = empty_aligned((size // 2,), np.uint16)
    step = 1 << 22
    for start in range(0, len(x), step):
        part = rng.standard_normal(min(step, len(x) - start), dtype=np.float32)
        x[start : start + step] = (part.view(np.uint32) >> 16).astype(np.uint16)
    words: Words = x
    return words


class Bench:
    """One run: a source, a memcpy of it, and the rows so far."""

    def __init__(self, size: int, pairs: int) -> None:
        self.size = size
        self.pairs = pairs
        self.x = source(size)
        self.copy = np.zeros_like(self.x)
        # One target for all decodes, so that none meets pages of another kind.
        self.target = empty_aligned(self.x.shape, np.uint16)
        self.target[:] = 0
        self.rows: list[Row] = []
        self.null = 1.0

    def memcpy(self) -> None:
        np.copyto(self.copy, self.x)

    def add(
        self,
        bench: str,
        path: str,
        work: Work,
        bar: float | None = None,
        share: float = 1.0,
        ceiling: float | None = None,
    ) -> None:
        pairs = self.pairs if share == 1.0 else max(5, int(self.pairs * share))
        median, q1, q3 = ratios(self.memcpy, work, pairs, share)
        met = None if bar is None else median >= bar or q3 >= bar * self.null
        self.rows.append(Row(bench, self.size, median, q1, q3, pairs, path, bar, met, ceiling))
        print(f"{bench:34} {path:24} {median:6.2f}", file=sys.stderr)

    def run_null(self) -> None:
        """memcpy against memcpy: outside 0.95 to 1.05 the machine is too unquiet to judge."""
        self.add("memcpy / memcpy", "numpy.copyto", self.memcpy)
        self.null = self.rows[-1].ratio
        self.rows[-1] = replace(self.rows[-1], met=0.95 <= self.null <= 1.05)

    def run_traffic(self, level: str) -> dict[int, float]:
        """The ceilings of streamed decodes by expansion.

        A streamed copy comes first: where it is faster than memcpy, memcpy reads the lines that it
        writes.
        """
        found = {}
        for times in (1, *EXPANSIONS):
            codes = self.copy.view(np.uint8)[: self.size // times]

            def traffic(codes: Any = codes, times: int = times) -> None:
                native.traffic(codes, times, self.target, level)

            bench = "copy" if times == 1 else f"traffic of N/{times} to N"
            self.add(bench, f"{level}, streamed", traffic)
            found[times] = self.rows[-1].ratio
        return found

    def run_level(self, level: str) -> None:
        streams = level not in ("scalar", "avx2", "neon")
        ceilings = self.run_traffic(level) if streams else {}
        for c in CONVERSIONS:
            x = self.x.reshape(-1, c.cols)
            # The specification is slow: a share of the size is enough.
            share = 1 / 16 if level == "scalar" else 1.0
            x = x[: int(len(x) * share)]
            given: dict[str, Any] = {} if c.scale is None else {"scale": c.scale}
            options: dict[str, Any] = {"level": level, "threads": 1}
            out = codec.encode(x, c.preset, dtype="bf16", **given, **options)
            target = self.target[: x.size].reshape(x.shape)
            bar = {"scalar": None, "avx2": c.encode_avx2}.get(level, c.encode)
            decode_bar = None if level == "scalar" else DECODE_BAR

            def encode(
                x: Words = x,
                c: Conversion = c,
                out: codec.Encoded = out,
                options: dict[str, Any] = options,
                given: dict[str, Any] = given,
            ) -> None:
                codec.encode(
                    x, c.preset, dtype="bf16", out=out, stores="cached", **given, **options
                )

            def decode(
                out: codec.Encoded = out,
                target: Any = target,
                options: dict[str, Any] = options,
                stores: Any = "cached",
            ) -> None:
                codec.decode(out, out=target, stores=stores, **options)

            def stream(decode: Any = decode) -> None:
                decode(stores="stream")

            self.add(f"encode {c.preset}", level, encode, bar, share)
            self.add(f"decode {c.preset}", level, decode, decode_bar, share)
            if streams:
                ceiling = ceilings[x.nbytes // out.codes.nbytes]
                stream_bar = STREAM_BAR if ceiling >= STREAM_BAR else STREAM_SHARE * ceiling
                path = f"{level}, streamed"
                self.add(f"decode {c.preset}", path, stream, stream_bar, ceiling=ceiling)

    def run_planes(self, level: str) -> None:
        planes = np.zeros(self.size, np.uint8)
        self.add("split byte planes", level, lambda: native.planes_split(self.x, planes, level))
        self.add("join byte planes", level, lambda: native.planes_join(planes, self.copy, level))

    def run_peers(self, names: list[str]) -> None:
        for name in names:
            try:
                found: Iterator[peers.Peer] = peers.PEERS[name](self.x)
                for peer in found:
                    self.add(peer.bench, peer.path, peer.work, share=peer.share)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
                print(f"{name}: not run ({reason})", file=sys.stderr)


def parse_size(text: str) -> int:
    """Bytes from a number with an optional KiB, MiB or GiB."""
    for suffix, unit in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)):
        if text.endswith(suffix):
            return int(text.removesuffix(suffix)) * unit
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--size", type=parse_size, default=64 << 20, help="bf16 bytes (64MiB)")
    parser.add_argument("--pairs", type=int, default=41)
    parser.add_argument("--level", action="append", help="only these levels; may be repeated")
    parser.add_argument(
        "--peer",
        action="append",
        choices=[*peers.PEERS, "none"],
        help="only these libraries; default: all that are importable",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table as CSV")
    parser.add_argument("--json", action="store_true", help="one object on standard output")


def run(args: argparse.Namespace) -> int:
    """0: every bar met; 1: one is not, or the null is off; 2: wrong use."""
    levels = args.level or codec.levels()
    unknown = [level for level in levels if level not in codec.levels()]
    if unknown or args.size < 1 << 20 or args.size % (1 << 20) or args.pairs < 1:
        known = ", ".join(codec.levels())
        print(
            f"kvstore bench codec: --level {unknown}, --size {args.size}, --pairs {args.pairs} "
            f"given; levels of {known}, whole MiB and at least one pair wanted",
            file=sys.stderr,
        )
        return 2
    bench = Bench(args.size, args.pairs)
    bench.run_null()
    for level in levels:
        bench.run_level(level)
        bench.run_planes(level)
    names = [name for name in (args.peer or peers.PEERS) if name != "none"]
    bench.run_peers(names)
    if args.out is not None:
        with args.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(Row.__slots__))
            writer.writeheader()
            writer.writerows(asdict(row) for row in bench.rows)
    print(json.dumps({"rows": [asdict(r) for r in bench.rows]}) if args.json else table(bench.rows))
    return 0 if all(row.met is not False for row in bench.rows) else 1


def table(rows: list[Row]) -> str:
    """A Markdown table."""
    lines = [
        "| conversion | path | x memcpy | q1 | q3 | pairs | ceiling | bar | met |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        bar = "" if row.bar is None else f"{row.bar:.2f}"
        ceiling = "" if row.ceiling is None else f"{row.ceiling:.3g}"
        met = {None: "", True: "yes", False: "no"}[row.met]
        lines.append(
            f"| {row.bench} | {row.path} | {row.ratio:.3g} | {row.q1:.3g} | {row.q3:.3g} "
            f"| {row.pairs} | {ceiling} | {bar} | {met} |"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Runs the command by itself."""
    parser = argparse.ArgumentParser(prog="kvstore bench codec", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
