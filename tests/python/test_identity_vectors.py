"""The golden vectors of identity, computed a second time from the written rule.

Nothing here uses the engine: the rules are those of docs/format-identity.md in a few lines over the
`blake3` package. Run as a program, the file prints all that it computed, for the test in fresh
processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

blake3 = pytest.importorskip("blake3").blake3

GOLDEN = Path(__file__).parents[1] / "golden" / "identity.json"
WEIGHTS_KINDS = ["full", "hub", "cached", "sampled", "name"]
OBJECT_KINDS = ["body", "window", "checkpoint"]

Vector = dict[str, Any]


def keyed(key: bytes, message: bytes) -> bytes:
    return bytes(blake3(message, key=key).digest())


def u16(value: int) -> bytes:
    return value.to_bytes(2, "little")


def u32(value: int) -> bytes:
    return value.to_bytes(4, "little")


def u64(value: int) -> bytes:
    return value.to_bytes(8, "little")


def named(name: str) -> bytes:
    return bytes([len(name.encode())]) + name.encode()


def encoding(v: Vector) -> bytes:
    kind = WEIGHTS_KINDS.index(v["weights"]["kind"]) + 1
    axes = sorted((name.encode(), rank, size) for name, rank, size in v["axes"])
    extra = sorted((name.encode(), value.encode()) for name, value in v["extra"].items())
    fields = {
        "format_version": u32(v["format_version"]),
        "model": v["model"].encode(),
        "revision": v["revision"].encode(),
        "weights": bytes([kind]) + bytes.fromhex(v["weights"]["digest"]),
        "adapter": bytes.fromhex(v["adapter"]),
        "dtype": v["dtype"].encode(),
        "scale_rule": v["scale_rule"].encode(),
        "layout": bytes.fromhex(v["layout"]),
        "block_tokens": u32(v["block_tokens"]),
        "axes": b"".join(bytes([len(n)]) + n + u32(rank) + u32(size) for n, rank, size in axes),
        "hash_rule": v["hash_rule"].encode(),
        "extra": b"".join(bytes([len(n)]) + n + u16(len(value)) + value for n, value in extra),
    }
    return b"kvn1" + b"".join(named(n) + u16(len(value)) + value for n, value in fields.items())


def root(v: Vector) -> bytes:
    salt = bytes.fromhex(v["salt"])
    message = b"kvstore-chain-1 root: epochs, salt length, salt\0"
    message += u64(int(v["namespace_epoch"])) + u64(int(v["tenant_epoch"]))
    return keyed(bytes.fromhex(v["namespace"]), message + u64(len(salt)) + salt)


def tenant_tag(v: Vector) -> int:
    salt = bytes.fromhex(v["salt"])
    digest = keyed(bytes.fromhex(v["secret"]), b"kvstore-tenant-1" + salt)
    return max(int.from_bytes(digest[:4], "little"), 1) if salt else 0


def chain(v: Vector) -> list[str]:
    tokens, size = [int(token) for token in v["tokens"].split()], v["block_tokens"]
    last, keys = bytes.fromhex(v["root"]), []
    for block in range(len(tokens) // size):
        message = b"".join(u32(token) for token in tokens[block * size : (block + 1) * size])
        frames = [(1, bytes.fromhex(extra)) for at, extra in v["extra_keys"] if at == block]
        if v["replayed_from"] == block:
            frames.append((2, b"kvstore.replayed"))
        for tag, extra in frames:
            message += bytes([tag]) + u32(len(extra)) + extra
        last = keyed(bytes.fromhex(v["namespace"]), last + bytes(blake3(message).digest()))
        keys.append(last.hex())
    return keys


def object_key(v: Vector) -> bytes:
    block = bytes.fromhex(v["block"])
    if v["kind"] == "body" and v["part"] is None:
        return block
    kind = OBJECT_KINDS.index(v["kind"]) + 1
    message = b"kvstore-object-1" + bytes([kind]) + block + u32(v["part"] or 0)
    return keyed(bytes.fromhex(v["namespace"]), message)


def foreign_key(v: Vector) -> bytes:
    foreign = bytes.fromhex(v["foreign"])
    message = b"kvstore-foreign1" + bytes.fromhex(v["root"]) + u32(v["group"])
    message += u32(len(foreign)) + foreign
    return keyed(bytes.fromhex(v["namespace"]), message.ljust(128, b"\0"))


def computed(kind: str, v: Vector) -> Vector:
    """The outputs of a vector, computed from its inputs."""
    if kind == "namespaces":
        encoded = encoding(v)
        return {"encoding": encoded.hex(), "digest": blake3(encoded).hexdigest()}
    if kind == "roots":
        return {"root": root(v).hex()}
    if kind == "tenant_tags":
        return {"tag": tenant_tag(v)}
    if kind == "chains":
        return {"keys": chain(v)}
    if kind == "objects":
        key = object_key(v)
        return {"key": key.hex(), "fingerprint": key[:16].hex()}
    assert kind == "foreign", kind
    return {"key": foreign_key(v).hex()}


def vectors() -> list[tuple[str, Vector]]:
    file = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return [(kind, v) for kind in file if kind != "about" for v in file[kind]]


def test_there_are_vectors_of_every_kind() -> None:
    kinds = {"namespaces", "roots", "tenant_tags", "chains", "objects", "foreign"}
    assert {kind for kind, _ in vectors()} == kinds


@pytest.mark.parametrize(("kind", "vector"), vectors())
def test_an_independent_computation_gives_the_golden_bytes(kind: str, vector: Vector) -> None:
    got = computed(kind, vector)
    assert got == {name: vector[name] for name in got}


def test_fresh_processes_with_other_hash_seeds_compute_the_same() -> None:
    """B2-02: no key rests on a hash that the language seeds per process."""
    outputs = set()
    for seed in ["0", "1", "4242"]:
        env = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, __file__], env=env, capture_output=True, text=True, check=True
        )
        outputs.add(run.stdout)
    assert outputs == {json.dumps([computed(kind, v) for kind, v in vectors()]) + "\n"}


if __name__ == "__main__":
    print(json.dumps([computed(kind, v) for kind, v in vectors()]))
