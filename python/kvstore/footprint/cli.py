"""``kvstore footprint``: what architectures cost to keep, to hold and to read."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kvstore._core import Architecture, Layout, architectures
from kvstore.footprint import costs
from kvstore.footprint import tables as make
from kvstore.footprint.chosen import Chosen, name_of
from kvstore.footprint.measure import Counted, measured_table
from kvstore.footprint.measured import command as measured
from kvstore.footprint.table import Table
from kvstore.footprint.through import Lost, count

#: The chain of DeepSeek's caches that ``--axes`` shows without names.
LINEAGE = (
    "deepseek-llm-7b",
    "deepseek-llm-67b",
    "deepseek-v2",
    "deepseek-v3",
    "deepseek-v3.2",
    "deepseek-v4-flash",
    "deepseek-v4.1-flash",
)

#: Tokens of the request that the tables are about, and of the prompt that --measure writes.
REQUEST_TOKENS = 131_072
MEASURED_TOKENS = 1_280


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="architectures (default: DeepSeek)"
    )
    parser.add_argument("--all", action="store_true", help="all architectures of the registry")
    parser.add_argument("--model", metavar="DIR", help="a folder with a transformers config.json")
    parser.add_argument("--toml", type=Path, metavar="FILE", help="a file with own architectures")
    parser.add_argument("--form", help="an engine's form instead of the default one")
    parser.add_argument("--draft", action="store_true", help="with the draft (MTP) layers' groups")
    parser.add_argument(
        "--axes", action="store_true", help="only the three axes, in name order given"
    )
    parser.add_argument("--forms", action="store_true", help="also every engine form")
    parser.add_argument(
        "--tokens",
        type=int,
        metavar="N",
        help=f"tokens a request (default: {REQUEST_TOKENS:,}; with --measure {MEASURED_TOKENS:,}, "
        f"with --measured {measured.TOKENS:,})",
    )
    parser.add_argument("--interval", type=int, default=8_192, metavar="P", help="of resume points")
    parser.add_argument("--devices", type=int, default=8, metavar="N")
    parser.add_argument("--hbm-gb", type=float, default=141.0, metavar="GB", help="per device")
    parser.add_argument(
        "--hbm-bandwidth", type=float, default=4.8, metavar="TB/S", help="per device"
    )
    parser.add_argument(
        "--ssd-price", type=float, default=20.0, metavar="USD", help="per TB and month"
    )
    parser.add_argument("--device-price", type=float, default=3.0, metavar="USD", help="per hour")
    parser.add_argument(
        "--tp", type=int, default=1, help="tensor-parallel ranks: adds a rank table"
    )
    parser.add_argument("--pp", type=int, default=1, help="pipeline-parallel ranks")
    parser.add_argument("--cp", type=int, default=1, help="context-parallel ranks")
    parser.add_argument(
        "--measure",
        type=Path,
        metavar="DIR",
        help="write a prompt of each through a store in DIR/NAME, read it back, show the overhead",
    )
    measured.add_arguments(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help=".csv, .parquet, .json or .html")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="write the pictures there")
    parser.add_argument(
        "--lineage", type=Path, metavar="FILE", help="write the paper's record there"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def run(args: argparse.Namespace) -> int:
    """Runs the command: 0 fine, 1 a store lost what it was given, 2 wrong use."""
    counted: list[Counted] = []
    try:
        if args.lineage:
            from kvstore.footprint.lineage import lineage_document

            _write_text(args.lineage, lineage_document())
            return 0
        if args.measured:
            found = measured.run(args, choose(args))
            _write(args, [found.table], found.document)
            _show(args, [found.table], found.document)
            return found.status
        tables = compute(args)
        if args.measure:
            counted = measure(args)
            tables.append(measured_table(counted))
        document = as_json(tables, counted)
        _write(args, tables, document)
    except Lost as error:
        print(f"kvstore footprint: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"kvstore footprint: {error}", file=sys.stderr)
        return 2
    _show(args, tables, document)
    return 0


def _show(args: argparse.Namespace, tables: list[Table], document: dict[str, Any]) -> None:
    if args.json:
        print(json.dumps(document, indent=1))
    elif not args.out:
        print("\n".join(table.text() for table in tables), end="")


def choose(args: argparse.Namespace) -> list[Chosen]:
    """The architectures that the arguments name, and their layouts."""
    text = args.toml.read_text(encoding="utf-8") if args.toml else None
    origin = str(args.toml or "registry")
    known = {a.name: a for a in architectures(text, origin=origin)}
    own = set(known) - {a.name for a in architectures()} if args.toml else set()
    if args.model:
        # a configuration of its own: no registry entry stands behind it
        form = args.form or "transformers"
        return [(None, Layout.from_hf_config(args.model, form=form, draft=args.draft))]
    if args.all:
        names = list(known)
    elif args.names:
        names = [_resolve(known, name) for name in args.names]
    else:
        names = sorted(own) or list(LINEAGE)
    return [(known[name], _layout(known[name], args)) for name in names]


def _layout(architecture: Architecture, args: argparse.Namespace) -> Layout:
    forms = {name for name, _ in architecture.forms}
    if args.all and args.form and args.form not in forms:
        return architecture.layout(draft=args.draft)
    return architecture.layout(args.form, draft=args.draft)


def _resolve(known: dict[str, Architecture], name: str) -> str:
    wanted = name.rsplit("/", 1)[-1].lower()
    for architecture in known.values():
        if wanted in {n.lower() for n in [architecture.name, *architecture.aliases]}:
            return architecture.name
    raise ValueError(f"no architecture is called {name!r}; `kvstore layouts` lists all")


def _positive(args: argparse.Namespace) -> None:
    for field in ("tokens", "interval", "devices", "tp", "pp", "cp"):
        value = getattr(args, field)
        if value is not None and value < 1:
            raise ValueError(f"--{field} = {value} must be 1 or more")
    for field in ("hbm_gb", "hbm_bandwidth"):
        if getattr(args, field) <= 0:
            name = field.replace("_", "-")
            raise ValueError(f"--{name} = {getattr(args, field)} must be above 0")


def compute(args: argparse.Namespace) -> list[Table]:
    """All tables that the arguments ask for."""
    _positive(args)
    chosen = choose(args)
    if args.axes:
        return [make.axes_table(chosen)]
    tokens = args.tokens or REQUEST_TOKENS
    basis = costs.Basis(
        hbm_gb=args.hbm_gb,
        hbm_tb_s=args.hbm_bandwidth,
        devices=args.devices,
        ssd_usd_tb_month=args.ssd_price,
        device_usd_hour=args.device_price,
        tokens=tokens,
        interval=args.interval,
    )
    tables = [
        make.master_table(chosen),
        make.persistent_table(chosen),
        make.read_table(chosen, basis),
        make.request_table(chosen, [tokens]),
        costs.fit_table(chosen, basis),
        costs.cost_table(chosen, basis),
        costs.overhead_table(chosen),
    ]
    if args.forms:
        tables.append(make.forms_table(chosen))
    if (args.tp, args.pp, args.cp) != (1, 1, 1):
        tables.append(costs.rank_table(chosen, (args.tp, args.pp, args.cp), tokens))
    return tables


def measure(args: argparse.Namespace) -> list[Counted]:
    """What a store counts for each architecture that the arguments name, in DIR/NAME."""
    tokens = args.tokens or MEASURED_TOKENS
    counted = []
    for architecture, layout in choose(args):
        name = name_of((architecture, layout))
        print(f"{name}: {tokens:,} tokens through a store", file=sys.stderr)
        folder = args.measure / name.replace("/", "--")
        counted.append(count(name, layout, folder, tokens, args.interval))
    return counted


def as_json(tables: list[Table], counted: Sequence[Counted] = ()) -> dict[str, Any]:
    """One object: ``rows`` with name, basis and bytes per token, with what a store counted beside
    where there is a count, and every table in full."""
    measured = {one.name: one.row() for one in counted}
    rows = []
    for table in tables:
        if table.name != "master":
            continue
        for row in table.json_rows():
            for basis, column in _BASES.items():
                value = row[column]
                if value is not None:
                    rows.append(
                        {
                            "name": row["name"],
                            "form": row["form"],
                            "basis": basis,
                            "bytes_per_token": str(value),
                            **measured.get(row["name"], {}),
                        }
                    )
    full = {t.name: {"title": t.title, "notes": t.notes, "rows": t.json_rows()} for t in tables}
    return {"rows": rows, "tables": full}


_BASES = {
    "logical": "bytes_per_token",
    "padded": "padded",
    "body": "bytes_in_body",
    "slot": "bytes_in_slot",
}


def _write(args: argparse.Namespace, tables: list[Table], document: dict[str, Any]) -> None:
    if args.pictures:
        from kvstore.footprint.pictures import write_pictures

        for path in write_pictures(args.pictures):
            print(path, file=sys.stderr)
    if not args.out:
        return
    writers: dict[str, Callable[[Table, Path], None]] = {
        ".csv": lambda table, path: _write_text(path, table.csv()),
        ".parquet": lambda table, path: table.write_parquet(path),
    }
    suffix = args.out.suffix
    if suffix == ".json":
        _write_text(args.out, json.dumps(document, indent=1) + "\n")
    elif suffix == ".html":
        from kvstore.footprint.report import html_report

        _write_text(args.out, html_report(tables))
    elif suffix in writers:
        # several tables go to FILE and FILE-<table>
        for i, table in enumerate(tables):
            name = args.out.name if i == 0 else f"{args.out.stem}-{table.name}{suffix}"
            writers[suffix](table, args.out.with_name(name))
    else:
        raise ValueError(f"--out {args.out}: must end in .csv, .parquet, .json or .html")


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
