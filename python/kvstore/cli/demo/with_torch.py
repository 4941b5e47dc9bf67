"""The parent of the demo through transformers: two processes, a kill between them, the figures."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

from kvstore import _core
from kvstore.cli.demo.shop import open_store
from kvstore.cli.demo.telling import Lines, duration
from kvstore.cli.output import WrongUse

__all__ = ["tell_torch"]

DESCRIPTOR = 64
"""Bytes of a descriptor in the slot table (FORMAT.md)."""
BEGUN = 3
"""The kill comes when so many further prompts are on their way."""


def tell_torch(directory: Path, tokens: int, *, quiet: bool) -> dict[str, Any]:
    """The whole demo; everything that it measured."""
    tenant = f"demo-{secrets.token_hex(4)}"

    say = Lines(quiet=quiet)
    say.line("A prefix of a transformers model survives kill -9.")
    say.line()
    say.entry("model", "the built-in one, as transformers' DeepseekV3ForCausalLM in bf16")
    first = _first(directory, tokens, tenant)
    cold = first["seconds"]
    say.line()
    say.line(f"1  A process (pid {first['pid']})")
    say.entry("start", "weights, store", _start(cold))
    say.entry("prefill", f"{tokens:,} tokens, cold, stored as it goes", cold["prefill"])
    say.entry("generate", f"{len(first['tokens'])} tokens", cold["generate"])
    say.entry("SIGKILL", "while it stores further prompts")
    second = _second(directory, tokens, tenant)
    warm = second["seconds"]
    say.line()
    say.line(f"2  Another process (pid {second['pid']})")
    say.entry("start", "weights, store", _start(warm))
    say.entry("restore", f"{second['usable']:,} of {tokens:,} tokens", warm["prefill"])
    say.entry("generate", f"{len(second['tokens'])} tokens", warm["generate"])
    with open_store(directory) as store:
        report = _core.check(store)
    found = _found(first, second, report, tokens)
    _closing(say, found)
    return found


def _closing(say: Lines, found: dict[str, Any]) -> None:
    say.line()
    say.line("3  The result")
    same = "the same in both" if found["same_tokens"] else "NOT the same"
    text = bytes(found["generated"]).decode("utf-8", "replace").encode("unicode_escape").decode()
    say.entry("tokens", f'{same}: "{text[:36]}..."')
    cold, warm = found["cold_prefill_seconds"], found["restored_prefill_seconds"]
    say.entry(
        "prefill", f"{duration(cold)} cold, {duration(warm)} restored: {found['ratio']:.0f} x"
    )
    check = found["check"]
    say.entry("check", f"{check['objects']:,} objects on disk, {check['damaged']} damaged")
    say.line()
    say.line("   bytes per token         computed   measured")
    say.line(f"   logical               {found['logical_computed']:>10} {found['logical']:>10}")
    say.line(f"   slots and descriptors            {found['physical']:>10}")
    say.line()
    if not found["ok"]:
        say.line("This is NOT what kvstore promises. Please report the lines above.")
        return
    say.line("Try next")
    say.line("   kvstore footprint --all")
    say.line("   python examples/mla.py")


def _first(directory: Path, tokens: int, tenant: str) -> dict[str, Any]:
    """Runs the first process up to its SIGKILL; what it told."""
    told: dict[str, Any] = {}
    begun = 0
    with _process(directory, tokens, tenant, "write") as process:
        assert process.stdout is not None
        for line in process.stdout:
            step = json.loads(line)
            begun += step["step"] == "begun"
            if step["step"] == "generated":
                told = step
            if begun >= BEGUN:
                process.kill()
                break
    if process.returncode != -signal.SIGKILL:
        raise WrongUse(f"the first process ended by itself, with status {process.returncode}")
    return told | {"pid": process.pid}


def _second(directory: Path, tokens: int, tenant: str) -> dict[str, Any]:
    with _process(directory, tokens, tenant, "restore") as process:
        assert process.stdout is not None
        told = process.stdout.read()
    if process.returncode:
        raise WrongUse(f"the second process ended with status {process.returncode}")
    found: dict[str, Any] = json.loads(told)
    return found | {"pid": process.pid}


def _process(directory: Path, tokens: int, tenant: str, stage: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kvstore.cli", "demo", "--torch", "--stage", stage]
    command += ["--dir", str(directory), "--tokens", str(tokens), "--tenant", tenant]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)


def _start(seconds: dict[str, float]) -> float:
    return seconds["model"] + seconds["open"]


def _found(
    first: dict[str, Any], second: dict[str, Any], report: dict[str, Any], tokens: int
) -> dict[str, Any]:
    from kvstore.models import demo

    block = second["block_tokens"]
    blocks = second["usable"] // block
    same = first["tokens"] == second["tokens"]
    cold, warm = first["seconds"]["prefill"], second["seconds"]["prefill"]
    read_back = second["hits"]["disk"] + second["hits"]["host"]
    whole = blocks == (tokens - 1) // block and read_back >= blocks and first["whole"]
    return {
        "ok": same and whole and not report["damaged"],
        "same_tokens": same,
        "generated": second["tokens"],
        "tokens": tokens,
        "usable": second["usable"],
        "hits": second["hits"],
        "cold_prefill_seconds": cold,
        "restored_prefill_seconds": warm,
        "ratio": cold / warm,
        "logical_computed": str(demo.describe()["cache_bytes_per_token"]),
        "logical": str(Fraction(second["body_bytes"], block)),
        "physical": str(Fraction(second["slot_bytes"] + DESCRIPTOR, block)),
        "check": {"objects": report["objects"], "damaged": len(report["damaged"])},
    }
