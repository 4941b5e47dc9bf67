"""The parent of a measurement: runs both processes of each architecture, and counts in between."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kvstore._core import Layout
from kvstore.footprint.chosen import Chosen, name_of
from kvstore.footprint.measured import disk
from kvstore.footprint.measured.keeping import LIMIT, Keeping, Kept, fitting, policies
from kvstore.footprint.measured.record import Record

__all__ = ["TOKENS", "Wrong", "measure"]

#: Tokens of the prompt.
TOKENS = 4_096


class Wrong(Exception):
    """A store held, or gave, something else than the arithmetic says."""


@dataclass(frozen=True, slots=True)
class _Store:
    keeping: Keeping
    kept: Kept
    default: bool
    folder: Path


def measure(
    chosen: Sequence[Chosen], *, tokens: int | None = None, folder: Path | None = None
) -> Iterator[Record]:
    """The records of each architecture, as they come. With a folder, which must be empty or not be
    there, the stores stay in it; without one they are removed.

    ValueError for a folder that is taken, fewer tokens than a block, or where torch is missing;
    Wrong where a store held, or gave back, something else than the arithmetic says.
    """
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise ValueError(f"--measured needs {package}: pip install 'kvstore-engine[torch]'")
    tokens = TOKENS if tokens is None else tokens
    for one in chosen:
        if tokens < one[1].block_tokens:
            block = one[1].block_tokens
            raise ValueError(f"tokens = {tokens} must be a block of {block} or more")
    failed = []
    with _place(folder) as root:
        for number, one in enumerate(chosen, 1):
            reason = _no_model(one)
            what = "a model of it runs" if reason is None else "computed only"
            print(f"[{number}/{len(chosen)}] {name_of(one)}: {what}", file=sys.stderr, flush=True)
            if reason is not None:
                yield from _computed(one, tokens, reason)
                continue
            try:
                yield from _measured(one, tokens, root)
            except Wrong as error:
                print(f"  {error}", file=sys.stderr, flush=True)
                failed.append(str(error))
            if folder is None:
                shutil.rmtree(root / name_of(one), ignore_errors=True)
    if failed:
        raise Wrong("; ".join(failed))


def _computed(chosen: Chosen, tokens: int, reason: str) -> Iterator[Record]:
    """The records of an architecture without a model."""
    name, layout = name_of(chosen), chosen[1]
    length = tokens // layout.block_tokens * layout.block_tokens
    for keeping, default in policies(layout, length, limit=None):
        store = _Store(keeping, keeping.kept(layout, length), default, Path())
        yield _record(name, store, note=f"computed only: {reason}")


def _measured(chosen: Chosen, tokens: int, root: Path) -> Iterator[Record]:
    """Runs both processes, and counts in between."""
    from kvstore.footprint.measured.models import LONGEST  # torch

    name, layout = name_of(chosen), chosen[1]
    length = min(fitting(layout, tokens), LONGEST.get(name, tokens))
    stores = []
    for keeping, default in policies(layout, length):
        place = root / name / keeping.title.replace(",", "").replace(" ", "-")
        stores.append(_Store(keeping, keeping.kept(layout, length), default, place))
    told = _write(name, layout, length, stores)
    if "refused" in told:
        yield from _computed(chosen, tokens, told["refused"])
    else:
        yield from _counted(name, layout, length, tokens, stores, told)


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    """Where the stores are."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="kvstore-footprint-") as made:
            yield Path(made)
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"--dir {folder}: must be empty, or not be there: stores are made in it")
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


def _no_model(chosen: Chosen) -> str | None:
    """Why no model runs for it, as far as that is known without trying."""
    architecture, layout = chosen
    if architecture is None:
        return "not of the registry"
    if architecture.counterfactual:
        return "counterfactual, there is no such model"
    if any(group.draft for group in layout.groups):
        return "no model here has draft layers of this size"
    from kvstore.footprint.measured.models import lacking  # torch

    return lacking(architecture.name)


def _counted(
    name: str, layout: Layout, length: int, asked: int, stores: list[_Store], told: dict[str, Any]
) -> Iterator[Record]:
    """Counts every store's files, then has the second process restore each."""
    found = [disk.count(store.folder) for store in stores]
    for store, sizes in zip(stores, found, strict=True):
        wanted = store.kept.sizes()
        if (sizes.objects, sizes.areas) != (wanted.objects, wanted.areas):
            raise Wrong(
                f"{name}, {store.keeping.title}: the files hold {sizes.objects} objects of "
                f"{sizes.areas} bytes, the arithmetic says {wanted.objects} of {wanted.areas}"
            )
    answers = _restore(name, layout, length, stores)
    note = (
        "" if length == asked else f"{length:,} of {asked:,} tokens: {_why(layout, length, asked)}"
    )
    for store, sizes, answer in zip(stores, found, answers, strict=True):
        yield _record(
            name,
            store,
            counted=sizes,
            index=answer["index"],
            mode=answer["mode"],
            same_logits=_same(name, store, told, answer),
            model=told["words"],
            note=note,
        )


def _why(layout: Layout, length: int, asked: int) -> str:
    if length < fitting(layout, asked):
        return "transformers runs its recurrence in plain PyTorch"
    if asked - length < layout.block_tokens:
        return "whole blocks"
    return f"the cache fits {LIMIT >> 20} MiB"


def _same(name: str, store: _Store, told: dict[str, Any], answer: dict[str, Any]) -> bool | None:
    """Whether the second process went on as the first did. None where that need not be."""
    where = f"{name}, {store.keeping.title}"
    if answer["usable"] != store.kept.usable():
        raise Wrong(f"{where}: {answer['usable']} tokens usable, {store.kept.usable()} planned")
    first, second = told["logits"], answer["logits"]
    if second is None:
        return None
    if not all(map(math.isfinite, second)):
        raise Wrong(f"{where}: logits that are not finite")
    if answer["mode"].endswith("replay") or not told["exact"]:
        return None
    if second != first:
        worst = max(abs(a - b) for a, b in zip(first, second, strict=True))
        raise Wrong(f"{where}: restored exactly, but the next logits differ by up to {worst:g}")
    return True


def _record(name: str, store: _Store, **more: Any) -> Record:
    layout = store.kept.layout
    return Record(
        name=name,
        form=layout.form,
        policy=store.keeping.title,
        default=store.default,
        tokens=store.kept.tokens,
        per_token=layout.bytes_per_token(),
        computed=store.kept.sizes(),
        **more,
    )


def _task(name: str, layout: Layout, length: int, stores: list[_Store]) -> dict[str, Any]:
    return {
        "name": name,
        "form": layout.form,
        "tokens": length,
        "stores": [(asdict(store.keeping), str(store.folder)) for store in stores],
        "usable": [store.kept.usable() for store in stores],
    }


def _write(name: str, layout: Layout, length: int, stores: list[_Store]) -> dict[str, Any]:
    """Runs the first process up to its SIGKILL; what it told."""
    for store in stores:
        store.folder.mkdir(parents=True)
    status, told = _process("write", _task(name, layout, length, stores))
    if not told or status != (0 if "refused" in told[0] else -signal.SIGKILL):
        raise Wrong(f"{name}: the first process ended by itself, with status {status}")
    return told[0]


def _restore(name: str, layout: Layout, length: int, stores: list[_Store]) -> list[dict[str, Any]]:
    """Runs the second process; what it told of each store."""
    status, told = _process("restore", _task(name, layout, length, stores))
    if status != 0:
        raise Wrong(f"{name}: the second process ended with status {status}")
    return told


def _process(stage: str, task: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """Status and lines of one process. One thread: the bits of a product depend on their number."""
    command = [sys.executable, "-m", "kvstore.footprint.measured", stage]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, input=json.dumps(task), capture_output=True, text=True, env=env, check=False
    )
    if done.returncode not in (0, -signal.SIGKILL):
        # What torch and transformers say about themselves is of interest only then.
        print(done.stderr, file=sys.stderr, end="", flush=True)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]
