"""The store under a serving engine's own block keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kvstore
import numpy as np
import pytest
import stores
from kvstore.layouts import Group, Layout
from stores import LAYOUT, namespace, open_store, rows

#: Each group is an object of its own.
SPLIT = Layout.opaque(
    "split", 16, [Group("full", 100, [0]), Group("other", 50, [1])], split_by_group=True
)


def keys(seed: int, count: int, width: int = 32) -> stores.Array:
    return rows(seed, count, width)


@pytest.mark.parametrize("width", [16, 20, 32])
def test_keys_come_in_one_buffer_or_a_list(tmp_path: Path, width: int) -> None:
    with open_store(tmp_path) as store:
        keyed = namespace(store).keyed
        ids, bodies = keys(1, 5, width), rows(2, 5, LAYOUT.body_bytes)
        assert keyed.put(ids, bodies, parents=[-1, 0, 1, 2, 3]).status.accepted
        given: list[Any] = [
            ids,
            ids.tobytes(),
            [key.tobytes() for key in ids],
            ids.view(f"V{width}")[:, 0],
        ]
        for same in given:
            match = keyed.match(same, width=width)
            assert (match.matched, match.host_blocks, match.disk_blocks) == (5, 5, 0)
            assert list(match.blocks) == ["host"] * 5
        with keyed.lease(ids) as lease:
            assert (len(lease), lease.missed) == (5, None)
            assert [bytes(view) for view in lease] == [body.tobytes() for body in bodies]
            assert bytes(lease[-1]) == bodies[4].tobytes()
            assert [bytes(part) for part in lease.parts(2)] == [bodies[2].tobytes()]
        with pytest.raises(kvstore.ClosedError):
            lease[0]
        out = np.zeros_like(bodies)
        assert keyed.get_into(ids, out) == 5
        assert np.array_equal(out, bodies)


def test_a_match_ends_at_the_first_key_that_is_not_stored(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        keyed = namespace(store).keyed
        ids, bodies = keys(1, 6), rows(2, 6, 1000)
        keyed.put(ids[:3], bodies[:3])
        keyed.put(ids[4:], bodies[4:])
        match = keyed.match(ids)
        assert match.matched == 3
        assert list(match.blocks) == ["host"] * 3 + ["absent"] * 3
        with keyed.lease(ids) as lease:
            assert (len(lease), lease.missed) == (3, "absent")
            with pytest.raises(IndexError):
                lease[3]
        out = [bytearray(1000) for _ in range(6)]
        assert keyed.get_into(ids, out) == 3
        assert out[2] == bodies[2].tobytes()
        assert out[4] == bytes(1000)


def test_objects_have_lengths_of_their_own(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        keyed = namespace(store).keyed
        ids, lengths = keys(1, 4), [10, 5000, 1, 700]
        joined = rows(2, 1, sum(lengths))[0]
        assert keyed.put(ids, joined, lengths=lengths).status.accepted
        out = [bytearray(length) for length in lengths]
        assert keyed.get_into(ids, out) == 4
        assert b"".join(out) == joined.tobytes()
        with pytest.raises(kvstore.InvalidArgument, match="place 0 has 11 bytes, its object 10"):
            keyed.get_into(ids, [bytearray(11), *out[1:]])


def test_parents_are_indices_roots_or_keys(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        keyed = namespace(store).keyed
        ids, bodies = keys(1, 6), rows(2, 6, 100)
        keyed.put(ids[:2], bodies[:2], parents=[-1, 0])
        batch = keyed.put(ids[2:], bodies[2:], parents=[ids[1].tobytes(), 0, -1, 2])
        assert batch.status.accepted
        assert batch.items == [("body", 0), ("body", 1), ("body", 2), ("body", 3)]
        assert keyed.put(ids[:1], bodies[:1], parents=np.array([-1])).status[0].name == "exists"
        wrong: Any
        for wrong in ([0], [1], [-2], [2**70], ["x"]):
            with pytest.raises(kvstore.InvalidArgument, match=r"parents\[0\]"):
                keyed.put(ids[:1], bodies[:1], parents=wrong)
        with pytest.raises(kvstore.InvalidArgument, match="parents has 1 items for 2 keys"):
            keyed.put(ids[:2], bodies[:2], parents=[-1])


def test_evicted_parents_take_no_children_along_in_a_full_store(tmp_path: Path) -> None:
    """Eviction goes by parents: a chain loses its end, never its beginning."""
    with open_store(tmp_path, disk_objects=60, host_bytes=0) as store:
        keyed = namespace(store).keyed
        for seed in range(10):
            ids, bodies = keys(seed, 20), rows(seed, 20, 4000)
            batch = keyed.put(ids, bodies, parents=[i - 1 for i in range(20)], ack="ssd")
            assert batch.wait(30)
            assert batch.status.accepted
        stored = 0
        for seed in range(10):
            answers = list(keyed.match(keys(seed, 20)).blocks)
            present = [answer == "disk" for answer in answers]
            assert present == sorted(present, reverse=True), "a prefix has no holes"
            stored += sum(present)
        assert 0 < stored <= 60


def test_groups_of_a_split_layout(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store, SPLIT)
        ids = keys(1, 3, 16)
        full, other = rows(2, 3, 1600), rows(3, 3, 800)
        assert ns.keyed.put(ids, full, parents=[-1, 0, 1], group=0).status.accepted
        assert ns.keyed.put(ids, other, group=1).status.accepted
        for group, bodies in enumerate((full, other)):
            out = np.zeros_like(bodies)
            assert ns.keyed.get_into(ids, out, group=group) == 3
            assert np.array_equal(out, bodies)
        assert ns.keyed.match(ids, group=2).matched == 0
        with pytest.raises(kvstore.InvalidArgument, match="keyed"):
            ns.put(range(16), [bytes(2400)])


def test_equal_keys_of_two_tenants_are_two_objects(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        first, second = (namespace(store, cache_salt=salt).keyed for salt in ("a", "b"))
        ids = keys(1, 1)
        first.put(ids, [b"first"])
        assert second.match(ids).matched == 0
        second.put(ids, [b"second"])
        with first.lease(ids) as mine, second.lease(ids) as other:
            assert (bytes(mine[0]), bytes(other[0])) == (b"first", b"second")


def test_no_keys_are_no_objects(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        keyed = namespace(store).keyed
        assert keyed.match([]).matched == 0
        assert keyed.match(b"").matched == 0
        assert len(keyed.lease([])) == 0
        assert keyed.get_into([], []) == 0
        assert len(keyed.put([], []).status) == 0


def test_keyed_misuse_names_field_value_and_limit(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        keyed = namespace(store).keyed
        ids = keys(1, 2)
        cases: dict[str, Callable[[], Any]] = {
            "say the width": lambda: keyed.match(bytes(64)),
            "key width is 15": lambda: keyed.match(bytes(30), width=15),
            "65 bytes long": lambda: keyed.match(bytes(65), width=32),
            "width is 16: the keys have 32 bytes": lambda: keyed.match(ids, width=16),
            r"keys\[1\] has 17 bytes": lambda: keyed.match([bytes(16), bytes(17)]),
            r"keys\[0\] is 'x'": lambda: keyed.match(["x"]),  # type: ignore[list-item]
            "keys is a int": lambda: keyed.match(3),  # type: ignore[arg-type]
            "bodies has 1 items for 2 keys": lambda: keyed.put(ids, [b"x"]),
            "lengths add up to 3": lambda: keyed.put(ids, b"four", lengths=[1, 2]),
            "lengths is 'ab'": lambda: keyed.put(ids, b"four", lengths="ab"),  # type: ignore[arg-type]
            "leave it out": lambda: keyed.put(ids, [b"x", b"y"], lengths=[1, 1]),
            r"bodies\[1\] is empty": lambda: keyed.put(ids, [b"x", b""]),
            "out has 3 places for 2 keys": lambda: keyed.get_into(ids, np.zeros((3, 9), np.uint8)),
            "read-only": lambda: keyed.get_into(ids, [bytes(4), bytes(4)]),
            "ack is .disk": lambda: keyed.put(ids, [b"x", b"y"], ack="disk"),
        }
        for message, call in cases.items():
            with pytest.raises(kvstore.InvalidArgument, match=message):
                call()
