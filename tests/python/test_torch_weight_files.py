"""Fingerprints of weights in files: read, remembered, by the names of the Hugging Face cache."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import kvstore
import pytest

torch = pytest.importorskip("torch", reason="needs torch")
save_file = pytest.importorskip("safetensors.torch", reason="needs safetensors").save_file
pytestmark = pytest.mark.torch

from kvstore.torch import remembered, weight_files  # noqa: E402
from kvstore.torch import weights as module  # noqa: E402
from kvstore.torch.weights import fingerprint  # noqa: E402


def _state(seed: int = 0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "a": torch.randn(50, 20, generator=generator),
        "b": torch.randn(7, generator=generator).bfloat16(),
        "c": torch.arange(6, dtype=torch.uint8),
        "d": torch.tensor(2.5),
        "e": torch.randn(30_000, generator=generator),
    }


def _folder(path: Path, state: dict[str, Any]) -> Path:
    """A model in two shards with an index, as `save_pretrained` writes one."""
    path.mkdir()
    names = sorted(state)
    shards = {"model-1-of-2.safetensors": names[:2], "model-2-of-2.safetensors": names[2:]}
    for file, shard in shards.items():
        save_file({name: state[name] for name in shard}, path / file, metadata={"format": "pt"})
    index = {"weight_map": {name: file for file, shard in shards.items() for name in shard}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    (path / "config.json").write_text("{}")
    return path


def _settle(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the files had been written a while ago."""
    monkeypatch.setattr(remembered, "_SETTLED_NS", 0)


@pytest.mark.parametrize("kind", ["full", "sampled"])
def test_files_have_the_fingerprint_of_their_tensors(tmp_path: Path, kind: Any) -> None:
    folder = _folder(tmp_path / "model", _state())
    assert fingerprint(folder, kind) == fingerprint(_state(), kind)
    assert fingerprint(str(folder), kind) == fingerprint(_state(), kind)
    save_file(_state(), tmp_path / "one.safetensors")
    assert fingerprint(tmp_path / "one.safetensors", kind) == fingerprint(_state(), kind)
    other = _state()
    other["e"][0] += 1
    assert fingerprint(_folder(tmp_path / "other", other), kind) != fingerprint(folder, kind)


def test_the_default_of_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _folder(tmp_path / "model", _state())
    notes = tmp_path / "notes.json"
    assert fingerprint(folder, remember=notes).kind == "full"
    monkeypatch.setattr(module, "FULL_LIMIT", 1000)
    assert fingerprint(folder, remember=notes).kind == "cached"
    assert fingerprint(_cache(tmp_path, _state()), remember=notes).kind == "hub"


# --- cached


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _settle(tmp_path, monkeypatch)
    folder, notes = _folder(tmp_path / "model", _state()), tmp_path / "deep" / "notes.json"
    before = fingerprint(folder, "cached", remember=notes)
    assert before.kind == "cached"
    monkeypatch.setattr(remembered, "_read", None)  # reading would raise
    assert fingerprint(folder, "cached", remember=notes) == before
    renamed = folder.rename(tmp_path / "renamed")
    assert fingerprint(renamed, "cached", remember=notes) == before


def test_one_changed_value_is_another_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written in place with its length and modification time kept, which the change time tells."""
    _settle(tmp_path, monkeypatch)
    folder, notes = _folder(tmp_path / "model", _state()), tmp_path / "notes.json"
    before = fingerprint(folder, "cached", remember=notes)
    file = folder / "model-2-of-2.safetensors"
    times = file.stat()
    with file.open("r+b") as data:
        data.seek(-1, os.SEEK_END)
        last = data.read(1)[0]
        data.seek(-1, os.SEEK_END)
        data.write(bytes([last ^ 1]))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert file.stat().st_mtime_ns == times.st_mtime_ns
    after = fingerprint(folder, "cached", remember=notes)
    assert after != before
    assert after == fingerprint(folder, "cached", remember=tmp_path / "others.json")


def test_a_fresh_file_is_not_remembered(tmp_path: Path) -> None:
    notes = tmp_path / "notes.json"
    fingerprint(_folder(tmp_path / "model", _state()), "cached", remember=notes)
    assert not notes.exists()


def test_damaged_notes_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _settle(tmp_path, monkeypatch)
    folder, notes = _folder(tmp_path / "model", _state()), tmp_path / "notes.json"
    before = fingerprint(folder, "cached", remember=notes)
    whole = notes.read_text()
    digest = next(iter(json.loads(whole)["files"].values()))
    wrong = whole.replace(digest, digest[::-1])
    for damaged in (wrong, whole[: len(whole) // 2], "", "[]", '{"files": 3, "check": ""}'):
        assert damaged != whole
        notes.write_text(damaged)
        assert fingerprint(folder, "cached", remember=notes) == before
        assert notes.read_text() == whole, "written again"


def test_notes_that_cannot_be_written_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _settle(tmp_path, monkeypatch)
    folder = _folder(tmp_path / "model", _state())
    (tmp_path / "file").touch()
    before = fingerprint(folder, "cached", remember=tmp_path / "file" / "notes.json")
    assert before == fingerprint(folder, "cached", remember=tmp_path / "notes.json")


def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.safetensors"
    save_file(_state(), file)
    key = remembered._key

    def grown(stat: os.stat_result) -> str:
        with file.open("ab") as data:
            data.write(b"x")
        return key(stat)

    monkeypatch.setattr(remembered, "_key", grown)
    with pytest.raises(kvstore.InvalidArgument, match="changed while it was read"):
        fingerprint(file, "cached", remember=tmp_path / "notes.json")


# --- hub


def _cache(root: Path, state: dict[str, Any]) -> Path:
    """A snapshot as the Hugging Face cache keeps it: links to blobs that are named by SHA-256, but
    small files by git's SHA-1."""
    model = root / "models--org--demo"
    (model / "blobs").mkdir(parents=True, exist_ok=True)
    plain = _folder(root / f"plain-{len(list(root.iterdir()))}", state)
    digest = hashlib.sha256(b"".join(f.read_bytes() for f in sorted(plain.iterdir()))).hexdigest()
    snapshot = model / "snapshots" / digest[:40]
    snapshot.mkdir(parents=True)
    for file in plain.iterdir():
        data = file.read_bytes()
        name = hashlib.sha256(data).hexdigest()
        if file.suffix == ".json":
            name = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        (model / "blobs" / name).write_bytes(data)
        (snapshot / file.name).symlink_to(Path("../../blobs") / name)
    return snapshot


def test_hub_reads_no_weights(tmp_path: Path) -> None:
    snapshot = _cache(tmp_path, _state())
    before = fingerprint(snapshot, "hub")
    assert before.kind == "hub"
    for blob in (tmp_path / "models--org--demo" / "blobs").iterdir():
        if len(blob.name) == 64:
            blob.write_bytes(b"")  # nobody looks
    assert fingerprint(snapshot, "hub") == before


def test_one_changed_value_is_another_snapshot(tmp_path: Path) -> None:
    before = fingerprint(_cache(tmp_path, _state()), "hub")
    other = _state()
    other["a"][0, 0] += 1
    assert fingerprint(_cache(tmp_path, other), "hub") != before


def test_files_of_git_are_read(tmp_path: Path) -> None:
    snapshot = _cache(tmp_path, _state())
    before = fingerprint(snapshot, "hub")
    (snapshot / "model.safetensors.index.json").resolve().write_text("{}")
    assert fingerprint(snapshot, "hub") != before


def test_what_the_cache_does_not_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _folder(tmp_path / "model", _state())
    with pytest.raises(kvstore.InvalidArgument, match=r"no link into the blobs.*cached"):
        fingerprint(folder, "hub")
    snapshot = _cache(tmp_path, _state())
    shard = snapshot / "model-1-of-2.safetensors"
    blob = shard.resolve()
    git = blob.rename(blob.with_name("0" * 40))
    shard.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(weight_files, "SMALL", 100)
        shard.symlink_to(Path("../../blobs") / git.name)
        with pytest.raises(kvstore.InvalidArgument, match="no SHA-256, and it is too large"):
            fingerprint(snapshot, "hub")
    shard.unlink()
    shard.symlink_to(Path("../../blobs") / ("1" * 64))
    with pytest.raises(kvstore.InvalidArgument, match="is not there"):
        fingerprint(snapshot, "hub")


# --- what is no weights


def test_paths_without_weights_say_so(tmp_path: Path) -> None:
    with pytest.raises(kvstore.InvalidArgument, match="snapshot_download"):
        fingerprint("org/demo")
    with pytest.raises(kvstore.InvalidArgument, match=r"has no weights: no \.safetensors, \.bin"):
        fingerprint(tmp_path)


def test_pickled_weights_are_identified_by_their_bytes(tmp_path: Path) -> None:
    torch.save(_state(), tmp_path / "pytorch_model.bin")
    with pytest.raises(kvstore.InvalidArgument, match=r'pytorch_model\.bin: kind "full".*cached'):
        fingerprint(tmp_path, "full")
    notes = tmp_path / "notes.json"
    assert fingerprint(tmp_path, remember=notes).kind == "cached"
    save_file(_state(), tmp_path / "model.safetensors")
    assert fingerprint(tmp_path, remember=notes).kind == "full", "the format that is loaded"


def test_damaged_safetensors(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file(_state(), file)
    whole = file.read_bytes()
    for data, why in [
        (whole[:-1], "cut short"),
        (whole[:40], "not JSON"),
        (b"\xff" * 8 + whole[8:], "no safetensors header"),
    ]:
        file.write_bytes(data)
        with pytest.raises(kvstore.InvalidArgument, match=why):
            fingerprint(file)


def test_a_tensor_in_two_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_file({"w": torch.zeros(2)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(kvstore.InvalidArgument, match=r"'w' is in .*a\.safetensors and in .*b"):
        fingerprint(tmp_path)
