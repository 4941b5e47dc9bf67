"""What the demo says, as it goes, to the person who watches it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from kvstore.cli.sizes import text

__all__ = ["Lines", "Telling", "duration"]

WIDTH = 72


class Lines:
    """Prints lines in two columns, and what took time in a third; nothing at all when `quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def line(self, line: str = "") -> None:
        if not self._quiet:
            print(line, flush=True)

    def entry(self, name: str, what: str, seconds: float | None = None) -> None:
        took = "" if seconds is None else duration(seconds)
        self.line((f"   {name:<11}{what}".ljust(WIDTH - len(took)) + took).rstrip())


class Telling(Lines):
    """The steps of the demo."""

    def opening(self, directory: Path) -> None:
        from kvstore.models import demo

        model = demo.describe()
        self.line("A real model's prefix survives kill -9.")
        self.line()
        self.entry(
            "model",
            f"{int(model['parameters']) / 1e6:.1f} M parameters, MLA as in DeepSeek-V3, in numpy",
        )
        self.entry("store", _short(directory))

    def step(self, name: str, told: dict[str, Any], tokens: int) -> None:
        """One step of the first process."""
        if name == "ready":
            self.line()
            self.line(f"1  A process (pid {told['pid']})")
            self.entry("start", "imports and weights", _start(told["ready"]))
        elif name == "prefilled":
            self.entry("prefill", f"{tokens:,} tokens, cold", told["prefilled"]["seconds"])
        elif name == "stored":
            stored = told["stored"]
            blocks = len(stored["digests"])
            what = f"{blocks} blocks, {text(stored['bytes'])}: safe from kill -9"
            self.entry("put", what, stored["seconds"])
        elif name == "generated":
            self.entry("generate", f"{len(told['generated']['tokens'])} tokens")
        elif name == "prepared":
            self.entry(
                "put more", f"{len(told['prepared']['digests'])} prompts, for tenant after tenant"
            )

    def killed(self, told: dict[str, Any]) -> None:
        pending = len(told["begun"]) - len(told["answered"])
        self.entry(
            "SIGKILL",
            f"{len(told['begun'])} more puts had begun, {pending} were not answered yet",
        )

    def restored(self, pid: int, told: dict[str, Any], tokens: int) -> None:
        """What the second process told."""
        disk, host = told["runs"]["disk"], told["runs"]["host"]
        self.line()
        self.line(f"2  Another process (pid {pid})")
        self.entry("start", "imports and weights", _start(told))
        self.entry("open", "recovery: one read of the slot table", told["seconds"]["open"])
        self.entry("restore", f"{disk['usable']:,} tokens from SSD", disk["seconds"]["restore"])
        self.entry("prefill", f"the last {tokens - disk['usable']}", disk["seconds"]["rest"])
        self.entry("generate", f"{len(disk['tokens'])} tokens")
        self.entry("again", f"{host['usable']:,} tokens from memory", host["seconds"]["restore"])

    def between(self) -> None:
        """The kill came too late for what the demo shows."""
        self.line()
        self.line("   The kill came between two puts, all are whole. Once more:")

    def closing(self, found: dict[str, Any]) -> None:
        """The figures, and what to try next."""
        killed = found["killed"]
        self.line()
        self.line("3  The result")
        same = "the same in both" if found["same_tokens"] else "NOT the same"
        self.entry("tokens", f"{same}: {_excerpt(found['generated'])}")
        self.entry(
            "prefill",
            f"{duration(found['cold_prefill_seconds'])} cold, "
            f"{duration(found['restored_prefill_seconds'])} restored: {found['ratio']:.0f} x",
        )
        self.entry("cache", f"{found['bytes_per_token']:,} bytes per token")
        self.entry("hits", f"{found['hits']['disk']} disk, then {found['hits']['host']} host")
        self.entry(
            "answered",
            f"{killed['puts_answered']} puts before the kill, "
            f"{killed['answered_and_lost']} of them lost",
        )
        self.entry(
            "not yet",
            f"{killed['unanswered_cut_off']} cut off and {killed['unanswered_absent']} not there: "
            f"misses; {killed['unanswered_whole']} whole",
        )
        self.entry("bytes", f"{found['wrong_blocks']} wrong blocks of all that was read")
        check = found["check"]
        self.entry("check", f"{check['objects']:,} objects on disk, {check['damaged']} damaged")
        self.line()
        if not found["ok"]:
            self.line("This is NOT what kvstore promises. Please report the lines above.")
            return
        directory = _short(Path(found["directory"]))
        self.line("Try next")
        self.line(f"   kvstore inspect {directory}")
        self.line(f"   kvstore check {directory}")
        self.line("   kvstore sim TRACE --policy leaf-lru,optimum --capacity 1%,10%")
        self.line("   kvstore demo --json")


def duration(seconds: float) -> str:
    """In the unit that leaves few digits: 5.31 s, 12.4 ms."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _short(directory: Path) -> str:
    """The directory as a shell takes it."""
    if directory.is_relative_to(Path.home()):
        return f"~/{shlex.quote(str(directory.relative_to(Path.home())))}"
    return shlex.quote(str(directory))


def _start(told: dict[str, Any]) -> float:
    seconds: dict[str, float] = told["seconds"]
    return seconds["imports"] + seconds["model"]


def _excerpt(generated: str) -> str:
    shown = generated.encode("unicode_escape").decode("ascii")
    return f'"{shown[:36]}..."'
