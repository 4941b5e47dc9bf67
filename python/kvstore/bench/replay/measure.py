"""All measurements of the report, in their order."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kvstore.bench.replay.cost import measure_cost, planned
from kvstore.bench.replay.drafts import measure_drafts
from kvstore.bench.replay.error import measure_error
from kvstore.bench.replay.families import FAMILIES, measure_family
from kvstore.bench.replay.subjects import PIECES, Subject, texts
from kvstore.bench.replay.training import bits_per_byte, corpus_parts, trained
from kvstore.models.deepseek import ReferenceModel, build

__all__ = ["FULL", "QUICK", "Extent", "measure"]

V4, V41 = "deepseek-v4-flash", "deepseek-v4.1-flash"


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    #: Where prompts are cut, in tokens: block ends.
    cuts: tuple[int, ...]
    #: Cuts of the models that are measured in less detail.
    few_cuts: tuple[int, ...]
    #: Texts of the trained model, and seeds of random weights.
    texts: int
    seeds: int
    #: Whether there is a trained model, and one of all 40 layers.
    train: bool
    true_geometry: bool
    cost_cuts: tuple[int, ...]
    rounds: int
    families: tuple[str, ...]
    draft_seeds: int
    drafts: int


FULL = Extent(
    cuts=(384, 512, 896, 1024, 1920, 2048, 3968, 4096),
    few_cuts=(512, 1024, 2048),
    texts=3,
    seeds=3,
    train=True,
    true_geometry=True,
    cost_cuts=(2048, 4096),
    rounds=5,
    families=FAMILIES,
    draft_seeds=4,
    drafts=300,
)
QUICK = Extent(
    cuts=(256, 384),
    few_cuts=(896,),
    texts=1,
    seeds=1,
    train=False,
    true_geometry=False,
    cost_cuts=(896,),
    rounds=2,
    families=("gemma3_text", "lfm2"),
    draft_seeds=1,
    drafts=40,
)

#: Tokens of the prompts that plans are made for, at true geometry.
PLANNED = (2_048, 8_192, 32_768, 131_072)


def measure(extent: Extent, *, steps: int, weights: Path | None) -> dict[str, Any]:
    """The report: lists of rows by name, and what they were measured with."""
    torch.set_num_threads(1)
    report: dict[str, Any] = {
        "made_with": f"torch {torch.__version__}, {platform.machine()}, one thread",
        "weights": [],
        "error": [],
        "exact": [],
    }
    main, others = _subjects(extent, steps, weights, report)
    longest = max(*extent.cuts, *extent.few_cuts, *extent.cost_cuts) + sum(PIECES) + 1
    apart = texts(corpus_parts()[1], max(extent.texts, extent.seeds), longest)
    cases: list[tuple[Subject, Sequence[torch.Tensor], tuple[int, ...]]] = [
        (main, apart[: extent.texts], extent.cuts)
    ]
    cases += [
        (subject, [apart[index % len(apart)]], extent.few_cuts)
        for index, subject in enumerate(others)
    ]
    for subject, ids, cuts in cases:
        _say(f"error: {subject.named()}")
        found = measure_error(subject, ids, cuts)
        report["error"] += found.error
        report["exact"] += found.exact
    report["planned"] = [row for name in (V41, V4) for cut in PLANNED for row in planned(name, cut)]
    report["cost"] = []
    true = [s for s in others if s.geometry == "true"]
    flash = [s for s in others if s.architecture == V4][:1]
    for subject, cuts in [(main, extent.cost_cuts), *((s, extent.few_cuts[-1:]) for s in true)]:
        report["cost"] += _costs(subject, apart[0], cuts, extent.rounds)
    for subject in flash:
        report["cost"] += _costs(subject, apart[0], extent.cost_cuts, extent.rounds)
    report["families"] = _families(extent.families)
    _say("drafts")
    report["drafts"] = [
        measure_drafts(seed, 200, extent.drafts + 1) for seed in range(extent.draft_seeds)
    ]
    return report


def _subjects(
    extent: Extent, steps: int, weights: Path | None, report: dict[str, Any]
) -> tuple[Subject, list[Subject]]:
    """The one that is measured in full, and the others."""
    others = [
        Subject(build(name, toy=True, seed=seed), name, "toy", "random")
        for name in (V41, V4)
        for seed in range(extent.seeds)
    ]
    if extent.true_geometry:
        others.append(Subject(build(V41), V41, "true", "random"))
    if not extent.train:
        return others[0], others[1:]
    model, steps = _trained(steps, weights)
    plain = build(V41, toy=True, form="fp32")
    plain.load_state_dict(model.state_dict())
    main = Subject(model, V41, "toy", "trained")
    apart = corpus_parts()[1]
    report["weights"].append(
        {
            "architecture": V41,
            "steps": steps,
            "parameters": sum(p.numel() for p in model.parameters()),
            "bits_per_byte": round(bits_per_byte(model, apart[:8193], 2048), 3),
        }
    )
    return main, [replace(main, model=plain), *others]


def _trained(steps: int, weights: Path | None) -> tuple[ReferenceModel, int]:
    """The toy V4.1 with trained weights, kept in the file or taken from there, and their steps."""
    if weights is not None and weights.exists():
        kept: dict[str, Any] = torch.load(weights, weights_only=True)
        model = build(V41, toy=True)
        model.load_state_dict(kept["model"])
        return model, int(kept["steps"])
    _say(f"training: {steps} steps")
    model = trained(V41, "native", steps, seed=0)
    if weights is not None:
        torch.save({"model": model.state_dict(), "steps": steps}, weights)
    return model, steps


def _costs(
    subject: Subject, ids: torch.Tensor, cuts: Sequence[int], rounds: int
) -> list[dict[str, Any]]:
    _say(f"cost: {subject.named()}")
    return [row for cut in cuts for row in measure_cost(subject, ids, cut, rounds)]


def _families(names: Sequence[str]) -> list[dict[str, Any]]:
    try:
        import transformers  # noqa: F401
    except ImportError:
        _say("families: not run (transformers is not installed)")
        return []
    _say("families")
    return [measure_family(name, 1024) for name in names]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
