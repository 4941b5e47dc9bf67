"""What a lease hands out: read-only, alive while anybody looks, never the cause of a wrong hit."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import kvstore
import numpy as np
import pytest
import stores
from stores import namespace, open_store


def counters(store: kvstore.Store) -> dict[str, Any]:
    found: dict[str, Any] = store.stats()["counters"]
    return found


def test_views_outlive_the_lease_and_the_store(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    ns = namespace(store)
    tokens, bodies = stores.store_prompt(ns, 1, 4)
    with ns.lease(ns.match(tokens)) as lease:
        view = lease[2]
        array = stores.array(lease[1])
        window = memoryview(lease[0])
        from_dlpack = np.from_dlpack(lease[3])
    assert bytes(view) == bodies[2].tobytes()
    with pytest.raises(kvstore.ClosedError, match="lease has ended"):
        lease[2]
    store.close()
    del store, ns, lease
    gc.collect()
    assert bytes(view) == bodies[2].tobytes()
    assert np.array_equal(array, bodies[1])
    assert bytes(window) == bodies[0].tobytes()
    assert np.array_equal(from_dlpack, bodies[3])


def test_memory_under_a_view_is_not_reused(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, bodies = stores.store_prompt(ns, 1, 4)
        with ns.lease(ns.match(tokens)) as lease:
            array = stores.array(lease[2])
        ns.clear(erase=True)
        for seed in range(2, 12):  # 120 MiB through 32 MiB of host memory
            stores.store_prompt(ns, seed, 500)
        assert np.array_equal(array, bodies[2])
        assert store.stats()["host"]["pinned"] > 0
        del array
        gc.collect()
        assert store.stats()["pins"] == 0


def test_numpy_sees_read_only_memory(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, bodies = stores.store_prompt(ns, 1, 2)
        with ns.lease(ns.match(tokens)) as lease:
            view = lease[0]
            assert (len(view), view.nbytes) == (bodies.shape[1], bodies.shape[1])
            assert memoryview(view).readonly
            for array in (stores.array(view), np.from_dlpack(view, copy=False)):
                assert not array.flags.writeable
                with pytest.raises(ValueError, match="read-only"):
                    array[0] = 1
            with pytest.raises(TypeError, match="read-only"):
                memoryview(view)[0] = 1
            copy = view.copy()
            assert isinstance(copy, bytearray)
            copy[0] ^= 1
            assert bytes(view) == bodies[0].tobytes()


def test_a_lease_past_its_deadline_gives_no_new_views(tmp_path: Path) -> None:
    with open_store(tmp_path, lease_deadline=0) as store:
        ns = namespace(store)
        tokens, _ = stores.store_prompt(ns, 1, 2)
        with (
            ns.lease(ns.match(tokens)) as lease,
            pytest.raises(kvstore.ClosedError, match="deadline"),
        ):
            lease[0]
        with (
            ns.keyed.lease([bytes(16)]) as keyed,
            pytest.raises(kvstore.ClosedError, match="deadline"),
        ):
            keyed[0]


def test_dlpack_says_read_only_or_copies(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, _ = stores.store_prompt(ns, 1, 1)
        with ns.lease(ns.match(tokens)) as lease:
            view = lease[0]
        assert view.__dlpack_device__() == (1, 0)
        versioned = "dltensor_versioned"
        assert versioned in repr(view.__dlpack__(max_version=(1, 0)))
        assert versioned in repr(view.__dlpack__(max_version=(1, 1), copy=False))
        assert versioned not in repr(view.__dlpack__())
        with pytest.raises(BufferError, match="max_version"):
            view.__dlpack__(copy=False)
        with pytest.raises(BufferError, match="max_version"):
            view.__dlpack__(max_version=(0, 8), copy=False)
        with pytest.raises(BufferError, match="stream"):
            view.__dlpack__(stream=1)
        with pytest.raises(BufferError, match="CPU"):
            view.__dlpack__(dl_device=(2, 0))
        del view
        gc.collect()
        assert store.stats()["pins"] == 0, "capsules that nobody consumed gave their memory back"


def test_an_exposed_object_is_read_from_disk_and_checked_afterwards(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, bodies = stores.store_prompt(ns, 1, 1)
        plan = ns.match(tokens)
        with ns.lease(plan) as lease:
            exported = memoryview(lease[0])
        before = counters(store)["bytes_read"]
        with ns.lease(plan) as lease:
            assert bytes(lease[0]) == bodies[0].tobytes()
        assert counters(store)["bytes_read"] == before + bodies.shape[1], "not from that memory"
        exported.release()
        with ns.lease(plan) as lease:
            assert bytes(lease[0]) == bodies[0].tobytes()
        assert counters(store)["bytes_read"] == before + bodies.shape[1], "trusted again"


def test_an_object_that_is_not_on_disk_is_exported_as_a_copy(tmp_path: Path) -> None:
    """Nothing but the disk could give its bytes back if a view were written through."""
    with open_store(tmp_path, write_budget_per_day=0) as store:
        ns = namespace(store)
        tokens, bodies = stores.prompt(1, 1), stores.bodies(1, 1)
        assert ns.put(tokens, bodies).status.accepted
        with ns.lease(ns.match(tokens)) as lease:
            first, second = (stores.array(lease[0]) for _ in range(2))
        assert not np.shares_memory(first, second)
        assert np.array_equal(first, bodies[0])


def test_torch_copies_unless_it_asks_for_a_view(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, bodies = stores.store_prompt(ns, 1, 2)
        plan = ns.match(torch.from_numpy(tokens))
        assert plan.usable == 128
        with ns.lease(plan) as lease:
            copy = torch.from_dlpack(lease[0])
        copy += 1
        with ns.lease(plan) as lease:
            assert bytes(lease[0]) == bodies[0].tobytes()
        other = stores.prompt(2, 2)
        assert ns.put(torch.from_numpy(other), torch.from_numpy(bodies)).status.accepted
        out = torch.empty(plan.read_bytes, dtype=torch.uint8)
        ns.get_into(ns.match(other), out)
        assert out.numpy().tobytes() == bodies.tobytes()
        with pytest.raises(kvstore.InvalidArgument, match="C-contiguous"):
            ns.get_into(plan, torch.empty(2 * plan.read_bytes, dtype=torch.uint8)[::2])


@pytest.mark.parametrize("through", ["from_dlpack", "frombuffer"])
@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_what_torch_writes_through_a_view_is_never_a_hit(tmp_path: Path, through: str) -> None:
    torch = pytest.importorskip("torch")
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, bodies = stores.store_prompt(ns, 1, 4)
        plan = ns.match(tokens)

        def check() -> None:
            with ns.lease(plan) as lease:
                assert [bytes(view) for view in lease] == [body.tobytes() for body in bodies]
            out = np.empty_like(bodies)
            assert ns.get_into(plan, out).usable == 256
            assert np.array_equal(out, bodies)

        with ns.lease(plan) as lease:
            if through == "from_dlpack":
                tensor = torch.from_dlpack(lease[1], copy=False)
            else:
                tensor = torch.frombuffer(lease[1], dtype=torch.uint8)
        check()
        tensor.add_(1)
        check()
        del tensor
        gc.collect()
        check()
        assert counters(store)["failed_checks"] == 1, "it was found when the last view had gone"


WRITE_TO_SHARED_ARENA = """
    import sys, warnings
    import stores, torch
    warnings.simplefilter("ignore")
    store = stores.open_store(sys.argv[1], arena="shared")
    ns = stores.namespace(store)
    tokens, bodies = stores.store_prompt(ns, 1, 2)
    with ns.lease(ns.match(tokens)) as lease:
        tensor = torch.frombuffer(lease[0], dtype=torch.uint8)
        assert tensor[5] == bodies[0, 5]
        print("read", flush=True)
        tensor[5] = 0
        print("written", flush=True)
"""


def test_views_of_a_shared_arena_cannot_be_written(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WRITE_TO_SHARED_ARENA), tmp_path],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        timeout=120,
        check=False,
    )
    assert child.stdout == "read\n", child.stderr
    assert child.returncode == -11, "a write is a fault, not damage"


def test_what_is_handed_out_never_changes_what_is_stored(tmp_path: Path) -> None:
    """B1-17: a caller that grows or overwrites what it was given restores the same bytes again."""
    with open_store(tmp_path) as store:
        ns = namespace(store)
        tokens, bodies = stores.store_prompt(ns, 1, 1)
        plan = ns.match(tokens)
        for _ in range(2):
            with ns.lease(plan) as lease:
                copy = lease[0].copy()
                assert copy == bodies[0].tobytes()
                copy[:] = bytes(len(copy))
            out = bytearray(plan.read_bytes)
            ns.get_into(plan, out)
            assert out == bodies[0].tobytes()
            out[:] = bytes(len(out))
