"""The trace reader and the simulator as Python sees them."""

import gzip
import json
import struct
from pathlib import Path

import pytest
from kvstore import _core

REQUESTS = [[1, 2, 3], [1, 2, 4, 5], [9], [1, 2, 3, 6]]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "small.jsonl.gz"
    with gzip.open(path, "wt") as file:
        for n, ids in enumerate(REQUESTS):
            request = {"timestamp": n, "input_length": 64, "output_length": 1, "hash_ids": ids}
            file.write(json.dumps(request) + "\n")
    return path


def test_a_trace_yields_its_requests(trace: Path) -> None:
    rows = list(_core.read_trace(trace))
    assert [row[:3] for row in rows] == [(float(n), 64, 1) for n in range(4)]
    assert [list(struct.unpack(f"<{len(row[3]) // 8}Q", row[3])) for row in rows] == REQUESTS
    assert len(list(_core.read_trace(trace, head=2))) == 2


def test_info_counts_blocks(trace: Path) -> None:
    assert _core.trace_info(trace) == {
        "requests": 4,
        "blocks_requested": 12,
        "unique_blocks": 7,
    }


def test_simulate_gives_a_row_per_capacity(trace: Path) -> None:
    small, all_ = _core.simulate(trace, "leaf-lru", ["3", "100%"])
    assert small["capacity_blocks"] == 3
    assert all_ == {
        "trace": "small.jsonl.gz",
        "policy": "leaf-lru",
        "capacity": "100%",
        "capacity_blocks": 7,
        "requests": 4,
        "blocks_requested": 12,
        "blocks_hit": 5,
        "hit_ratio": 5 / 12,
        "blocks_written": 7,
        "bytes_written_per_byte_hit": 7 / 5,
    }
    (cold,) = _core.simulate(trace, "lru", ["100%"], head=1)
    assert cold["bytes_written_per_byte_hit"] is None


def test_errors_say_where(tmp_path: Path, trace: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"timestamp": 0, "input_length": 1, "output_length": -1, "hash_ids": []}\n')
    with pytest.raises(ValueError, match=r"bad\.jsonl: line 1: output_length: must be an integer"):
        list(_core.read_trace(bad))
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl: line 1: "):
        _core.simulate(tmp_path / "none.jsonl", "lru", ["1%"])
    with pytest.raises(ValueError, match=r'policy "fifo": must be one of leaf-lru, lru, optimum'):
        _core.simulate(trace, "fifo", ["1%"])
    with pytest.raises(ValueError, match=r'capacity "0%": must be a number of blocks'):
        _core.simulate(trace, "lru", ["0%"])


def test_hits_can_be_had_for_each_request(trace: Path) -> None:
    for policy in ("leaf-lru", "lru", "optimum"):
        (row,) = _core.simulate(trace, policy, ["100%"], per_request=True)
        assert row["hits"] == [0, 2, 0, 3]
