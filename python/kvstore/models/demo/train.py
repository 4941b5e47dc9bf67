"""Train the demo model on the standard library's source. Needs torch; one thread, no GPU.

    OMP_NUM_THREADS=1 python -m kvstore.models.demo.train --minutes 25 \\
        --out weights.safetensors --log train.log

The budget is CPU time of this process, so that a busy machine gives the same model as a quiet one;
a run that was cut off goes on from its last checkpoint with `--resume`. Training does not reproduce
bit for bit on another machine: the bits per byte that this run reached go into the log and into the
weights' metadata. The recipe itself (Muon, bf16 autocast, long contexts last) is in `recipe.py`.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.nn.functional as F
from torch import Tensor

from kvstore.models.demo import corpus, recipe
from kvstore.models.demo.torch_model import Decoder
from kvstore.models.mla_config import MlaConfig
from kvstore.models.safetensors import pack_bf16

SMOKE_SECONDS = 20.0
SAMPLE = 8192
"""Bytes at the head of the held-out text that get a figure of their own, quick to compute again."""

LOG_EVERY, CHECK_EVERY, SAVE_EVERY = 20.0, 240.0, 120.0
"""CPU seconds between lines of the log, between held-out checks, and between checkpoints."""


@dataclass
class Progress:
    """What has been done so far; it is saved with the checkpoint."""

    cpu: float = 0.0
    """CPU seconds spent in training steps, held-out checks not counted."""
    steps: int = 0
    bytes_seen: int = 0
    losses: list[float] = field(default_factory=list)
    """Training loss of each step, bits per byte."""


def train(
    model: Decoder, data: Tensor, held_out: Tensor, args: argparse.Namespace, log: TextIO
) -> Progress:
    """Run until the budget is spent, or go on from the checkpoint beside `args.out`."""
    budget = SMOKE_SECONDS if args.smoke else args.minutes * 60.0
    made = recipe.optimizers(model)
    full = [[group["lr"] for group in optimizer.param_groups] for optimizer in made]
    done = Progress()
    checkpoint = args.out.with_suffix(".checkpoint")
    if args.resume:
        saved: dict[str, Any] = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        for optimizer, state in zip(made, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        done = Progress(**saved["progress"])
        say(log, f"resumed at cpu {done.cpu / 60:.2f} min, step {done.steps}")
    generator = torch.Generator().manual_seed(args.seed + done.steps)
    stage = (0, 0)
    logged = checked = kept = done.cpu
    while done.cpu < budget:
        begun = time.process_time()
        share = done.cpu / budget
        if recipe.stage_at(share) != stage:
            stage = recipe.stage_at(share)
            source = recipe.windows(data, stage[0], generator)
        for optimizer, rates in zip(made, full, strict=True):
            for group, highest in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = highest * recipe.rate(share, done.steps)
        done.losses.append(step(model, made, [next(source) for _ in range(stage[1])]))
        done.steps += 1
        done.bytes_seen += stage[0] * stage[1]
        done.cpu += time.process_time() - begun
        if done.cpu - logged >= (2.0 if args.smoke else LOG_EVERY):
            logged = done.cpu
            recent = done.losses[-20:]
            say(
                log,
                f"cpu {done.cpu / 60:6.2f} min  step {done.steps:5d}  context {stage[0]:4d}  "
                f"seen {done.bytes_seen / 1e6:6.3f} MB  "
                f"loss {sum(recent) / len(recent):.3f} bits/byte",
            )
        if not args.smoke and done.cpu - checked >= CHECK_EVERY:
            checked = done.cpu
            some = held_out[: 16 * 4096 + 1]
            found = [f"{n}: {recipe.bits_per_byte(model, some, n):.3f}" for n in (512, 4096)]
            say(log, f"held out, first 64 KiB, bits/byte at context {', '.join(found)}")
        if not args.smoke and done.cpu - kept >= SAVE_EVERY:
            kept = done.cpu
            states = [optimizer.state_dict() for optimizer in made]
            entry = {"model": model.state_dict(), "optimizers": states, "progress": vars(done)}
            torch.save(entry, checkpoint)
    return done


def step(model: Decoder, made: list[torch.optim.Optimizer], sequences: list[Tensor]) -> float:
    """One step on sequences of context + 1 bytes; the loss before it, in bits per byte."""
    batch = torch.stack(sequences)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()  # type: ignore[no-untyped-call]
    for optimizer in made:
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach()) / math.log(2)


def measure(model: Decoder, held_out: Tensor, smoke: bool, log: TextIO) -> dict[str, str]:
    """Bits per byte on the held-out text of the weights as they are stored, as metadata."""
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    found = {"bits_per_byte_4096_sample": recipe.bits_per_byte(model, held_out[: SAMPLE + 1], 4096)}
    if not smoke:
        for context in (512, 4096, 8192):
            bits = recipe.bits_per_byte(model, held_out, context)
            found[f"bits_per_byte_{context}"] = bits
            say(log, f"held out, all of it, bits/byte at context {context}: {bits:.4f}")
    say(
        log,
        f"held out, first {SAMPLE} bytes, bits/byte at context 4096: "
        f"{found['bits_per_byte_4096_sample']:.4f}",
    )
    return {name: f"{bits:.4f}" for name, bits in found.items()}


def say(log: TextIO, line: str) -> None:
    print(line, flush=True)
    print(line, file=log, flush=True)


def main(arguments: list[str] | None = None) -> Progress:
    parser = argparse.ArgumentParser(description="Train the demo model of kvstore.")
    parser.add_argument("--minutes", type=float, default=25.0, help="CPU minutes of training")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("weights.safetensors"))
    parser.add_argument("--log", type=Path, default=Path("train.log"))
    parser.add_argument("--smoke", action="store_true", help="20 CPU seconds: does the loss fall?")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    args = parser.parse_args(arguments)

    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    model = Decoder(MlaConfig.read(Path(__file__).with_name("config.json")))
    count = sum(parameter.numel() for parameter in model.parameters())
    data, held_out = (
        torch.tensor(list(part), dtype=torch.uint8).long() for part in corpus.split(corpus.text())
    )
    with args.log.open("a" if args.resume else "w", encoding="utf-8") as log:
        say(log, f"corpus: {corpus.describe()}")
        say(log, f"{len(data)} bytes to train on, the last {len(held_out)} held out")
        say(log, f"{count} parameters, torch {torch.__version__}, seed {args.seed}, one thread")
        done = train(model, data, held_out, args, log)
        metadata = {
            "format": "pt",
            **measure(model, held_out, args.smoke, log),
            "corpus": corpus.describe(),
            "held_out": f"the last {len(held_out)} bytes by file order",
            "bytes_seen": str(done.bytes_seen),
            "cpu_minutes": f"{done.cpu / 60:.1f}",
            "seed": str(args.seed),
            "torch": torch.__version__,
            "date": datetime.now(UTC).date().isoformat(),
        }
        tensors = {name: p.detach().numpy() for name, p in model.named_parameters()}
        args.out.write_bytes(pack_bf16(tensors, metadata))
        say(log, f"wrote {args.out.name}: {args.out.stat().st_size} bytes")
    return done


if __name__ == "__main__":
    main()
