"""``kvstore layouts``: what the registry knows, one architecture in full, or the audit of
transformers' configurations."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kvstore._core import Architecture, architectures
from kvstore.layouts import audit as auditing
from kvstore.layouts.audit import Finding, summary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="architectures to describe")
    parser.add_argument("--form", help="an engine's form instead of the default one")
    parser.add_argument("--draft", action="store_true", help="with the draft (MTP) layers' groups")
    parser.add_argument("--toml", type=Path, metavar="FILE", help="a file with own architectures")
    parser.add_argument(
        "--audit",
        action="store_true",
        help="every configuration class of the installed transformers, and its layout or the "
        "field that has no place",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the list there")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def run(args: argparse.Namespace) -> int:
    """Runs the command: 0 fine, 2 wrong use."""
    try:
        if args.audit:
            return _audit(args)
        text = args.toml.read_text(encoding="utf-8") if args.toml else None
        known = architectures(text, origin=str(args.toml or "registry"))
        return _describe(args, known) if args.names else _list(args, known)
    except (OSError, ValueError) as error:
        print(f"kvstore layouts: {error}", file=sys.stderr)
        return 2


def _find(known: list[Architecture], name: str) -> Architecture:
    wanted = name.rsplit("/", 1)[-1].lower()
    for architecture in reversed(known):
        if wanted in {n.lower() for n in [architecture.name, *architecture.aliases]}:
            return architecture
    raise ValueError(f"no architecture is called {name!r}; `kvstore layouts` lists all")


def _describe(args: argparse.Namespace, known: list[Architecture]) -> int:
    chosen = [_find(known, name) for name in args.names]
    layouts = [(a, a.layout(args.form, draft=args.draft)) for a in chosen]
    if args.json:
        rows = [
            {
                "name": a.name,
                "form": layout.form,
                "body_bytes": layout.body_bytes,
                "window_bytes": layout.window_bytes,
                "checkpoint_bytes": layout.checkpoint_bytes,
                "bytes_per_token": str(layout.bytes_per_token()),
                "groups": summary(layout),
                "source": a.source,
                "confidence": a.confidence,
            }
            for a, layout in layouts
        ]
        print(json.dumps({"layouts": rows}, indent=1))
        return 0
    for architecture, layout in layouts:
        print(f"{architecture.title} ({architecture.mechanism}), {architecture.source}")
        print(layout.describe())
        forms = ", ".join(name for name, _ in architecture.forms)
        print(f"  forms: {forms}\n")
    return 0


def _list(args: argparse.Namespace, known: list[Architecture]) -> int:
    if args.json:
        rows = [
            {
                "name": a.name,
                "aliases": a.aliases,
                "mechanism": a.mechanism,
                "forms": [name for name, _ in a.forms],
                "source": a.source,
                "confidence": a.confidence,
            }
            for a in known
        ]
        print(json.dumps({"architectures": rows}, indent=1))
        return 0
    for a in known:
        per_token = float(a.layout().bytes_per_token())
        print(f"{a.name:24} {per_token:>12,.2f} B per token  {a.mechanism:24} [{a.default_form}]")
    return 0


def audit_text(version: str, findings: list[Finding]) -> str:
    """The committed form of the audit."""
    placed = sum(not finding.field for finding in findings)
    head = (
        f"# transformers {version}: {len(findings)} configuration classes with their defaults, "
        f"{placed} placed.\n# Made by `kvstore layouts --audit --out docs/layouts-audit.txt`. "
        "Encoders have the layout that\n# their widths would give a decoder.\n"
    )
    return head + "".join(finding.line() + "\n" for finding in findings)


def _audit(args: argparse.Namespace) -> int:
    version = auditing.available()
    if version is None:
        raise ValueError("--audit needs transformers: pip install transformers")
    findings = list(auditing.audit())
    text = audit_text(version, findings)
    if args.out:
        args.out.write_text(text, encoding="utf-8")
        print(f"{args.out}: {len(findings)} classes", file=sys.stderr)
    elif args.json:
        rows = [finding.row() for finding in findings]
        print(json.dumps({"transformers": version, "findings": rows}, indent=1))
    else:
        print(text, end="")
    return 0
