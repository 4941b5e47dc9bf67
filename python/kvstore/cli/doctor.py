"""Say what this machine gives a store in a directory, and what would make it faster or safer.

Looks at the file system, direct I/O, free space, huge pages and locked memory. A small store is
made beside it for the length of the test. Status 1 if something is worth mending.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import NamedTuple

import kvstore
from kvstore.cli.opening import add_directory
from kvstore.cli.output import WrongUse, print_json, table
from kvstore.cli.sizes import text

__all__ = ["add_arguments", "run"]

GIB = 1 << 30


class Finding(NamedTuple):
    """One thing that was looked at; `mend` is empty where it is as it should be."""

    what: str
    found: str
    mend: str


def add_arguments(parser: ArgumentParser) -> None:
    add_directory(parser)


def run(args: Namespace) -> int:
    directory: Path = args.directory
    if not directory.is_dir():
        raise WrongUse(f"{directory}: no directory; make it first, on the drive that is meant")
    findings = [
        _file_system(directory),
        *_io(directory),
        _space(directory),
        _huge_pages(),
        _locked_memory(),
    ]
    if args.json:
        print_json({"findings": [finding._asdict() for finding in findings]})
    else:
        rows = [finding._asdict() for finding in findings]
        print(table(rows, {"what": "", "found": "", "mend": ""}).strip("\n "))
    return 1 if any(finding.mend for finding in findings) else 0


def _file_system(directory: Path) -> Finding:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    above = {str(path) for path in (directory.resolve(), *directory.resolve().parents)}
    kind = max((fields for fields in mounts if fields[1] in above), key=lambda f: len(f[1]))[2]
    volatile = "memory, not a drive: nothing survives a restart" if kind == "tmpfs" else ""
    return Finding("file system", kind, volatile)


def _io(directory: Path) -> list[Finding]:
    with tempfile.TemporaryDirectory(prefix=".kvstore-doctor-", dir=directory) as scratch:
        with kvstore.open(scratch, host_bytes="64 MiB", disk_bytes="128 MiB") as store:
            stats = store.stats()
        disk, host = stats["disk"], stats["host"]
    path = disk["path"]
    direct = path["direct"]
    mend = "" if direct else f"the page cache is in between: {disk['path_why']}"
    found = f"{path['engine']}, {'direct' if direct else 'buffered'}, units of {path['unit']}"
    return [
        Finding("I/O", found, mend),
        Finding("host memory", f"{host['kind']}, {host['backing']}", ""),
    ]


def _space(directory: Path) -> Finding:
    free = shutil.disk_usage(directory).free
    return Finding("free space", text(free), "" if free > GIB else "less than 1 GiB")


def _huge_pages() -> Finding:
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not path.exists():
        return Finding("huge pages", "none", "this kernel has none: reads cost more CPU")
    word = path.read_text().split("[")[1].split("]")[0]
    return Finding("huge pages", word, f"echo madvise > {path}" if word == "never" else "")


def _locked_memory() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = soft == resource.RLIM_INFINITY or os.geteuid() == 0
    return Finding("locked memory", "unlimited" if unlimited else text(soft), "")
