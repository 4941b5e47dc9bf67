"""The parent of the demo: runs both processes, kills the first, compares, tells."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvstore import _core
from kvstore.cli.demo.shop import open_store
from kvstore.cli.demo.telling import Telling
from kvstore.cli.output import WrongUse

__all__ = ["tell"]

BEGUN = 16
ANSWERED = 8
"""When the kill comes: so many puts are begun, and so many of them acknowledged."""
ATTEMPTS = 5
"""The kill is meant to come in the middle of a put. Between two of them it proves nothing."""


def tell(directory: Path, tokens: int, *, quiet: bool) -> dict[str, Any]:
    """The whole demo; everything that it measured."""
    # A tenant of its own: what an earlier demo has left in the directory is no help to this one.
    tenant = f"demo-{secrets.token_hex(4)}"
    say = Telling(quiet=quiet)
    say.opening(directory)
    for attempt in range(ATTEMPTS):
        part = f"{tenant}-{attempt}"
        first = _write(directory, tokens, part, say)
        second = _restore(directory, tokens, part, first, say)
        if not all(put["whole"] for put in second["others"]):
            break
        say.between()
    with open_store(directory) as store:
        report = _core.check(store)
    found = _compare(first, second, report, tokens)
    found["directory"] = str(directory)
    say.closing(found)
    return found


def _process(directory: Path, tokens: int, tenant: str, stage: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kvstore.cli", "demo", "--stage", stage]
    command += ["--dir", str(directory), "--tokens", str(tokens), "--tenant", tenant]
    # One BLAS thread in both: the bits of a product depend on how many there are, and for matrices
    # as small as these, on a busy machine, one is also the fastest.
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )


def _write(directory: Path, tokens: int, tenant: str, say: Telling) -> dict[str, Any]:
    """Runs the first process up to its SIGKILL; what it told, by step."""
    told: dict[str, Any] = {"begun": [], "answered": []}
    with _process(directory, tokens, tenant, "write") as process:
        told["pid"] = process.pid
        assert process.stdout is not None
        for line in process.stdout:
            step = json.loads(line)
            name = step.pop("step")
            if name in ("begun", "answered"):
                told[name].append((step["turn"], step["prompt"]))
            else:
                told[name] = step
                say.step(name, told, tokens)
            if len(told["begun"]) >= BEGUN and len(told["answered"]) >= ANSWERED:
                process.kill()  # what it had told until then is still in the pipe, and counts
    if process.returncode != -signal.SIGKILL:
        raise WrongUse(f"the first process ended by itself, with status {process.returncode}")
    say.killed(told)
    return told


def _restore(
    directory: Path, tokens: int, tenant: str, first: dict[str, Any], say: Telling
) -> dict[str, Any]:
    """Runs the second process to its end; what it told."""
    message = {
        "digests": first["stored"]["digests"],
        "others": first["prepared"]["digests"],
        "begun": first["begun"],
    }
    with _process(directory, tokens, tenant, "restore") as process:
        answer, _ = process.communicate(json.dumps(message))
    if process.returncode != 0:
        raise WrongUse(f"the second process ended with status {process.returncode}")
    told: dict[str, Any] = json.loads(answer)
    say.restored(process.pid, told, tokens)
    return told


def _compare(
    first: dict[str, Any], second: dict[str, Any], report: Mapping[str, Any], tokens: int
) -> dict[str, Any]:
    """The figures of both processes side by side."""
    disk, host = second["runs"]["disk"], second["runs"]["host"]
    cold = first["prefilled"]["seconds"]
    restored = sum(disk["seconds"].values())
    answered = {tuple(put) for put in first["answered"]}
    whole = {(put["turn"], put["prompt"]) for put in second["others"] if put["whole"]}
    partial = {
        (put["turn"], put["prompt"])
        for put in second["others"]
        if put["blocks"] and not put["whole"]
    }
    blocks = len(first["stored"]["digests"])
    found = {
        "tokens": tokens,
        "same_tokens": all(run["tokens"] == first["generated"]["tokens"] for run in (disk, host)),
        "generated": bytes(first["generated"]["tokens"]).decode("utf-8", "replace"),
        "cold_prefill_seconds": cold,
        "restored_prefill_seconds": restored,
        "restored_from_host_seconds": sum(host["seconds"].values()),
        "ratio": cold / restored,
        "import_seconds": first["ready"]["seconds"]["imports"],
        "open_seconds": second["seconds"]["open"],
        "stored_blocks": blocks,
        "bytes_per_token": first["stored"]["bytes"] // (blocks * 64),
        "hits": {tier: disk["hits"][tier] + host["hits"][tier] for tier in ("disk", "host")},
        "killed": {
            "puts_begun": len(first["begun"]),
            "puts_answered": len(answered),
            "answered_and_lost": len(answered - whole),
            "unanswered_whole": len(whole - answered),
            "unanswered_cut_off": len(partial - answered),
            "unanswered_absent": len(first["begun"]) - len(answered | whole | partial),
        },
        "wrong_blocks": sum(run["wrong_blocks"] for run in [disk, host, *second["others"]]),
        "check": {"objects": report["objects"], "damaged": len(report["damaged"])},
    }
    found["ok"] = bool(
        found["same_tokens"]
        and first["stored"]["whole"]
        and not found["wrong_blocks"]
        and not len(answered - whole)
        and not report["damaged"]
        and len(first["begun"]) > len(answered | whole)
    )
    return found
