"""The store and the process around it: threads, forks, and every way to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kvstore
import numpy as np
import pytest
import stores
from stores import BLOCK, namespace, open_store, prompt

HERE = Path(__file__).parent
#: Long enough for a loaded machine; what hangs, hangs for ever.
PATIENCE = 60


@contextmanager
def another_thread() -> Iterator[Callable[[], int]]:
    """A thread that counts whenever it gets the interpreter, which nobody takes from another."""
    turns = 0
    stop = False

    def count() -> None:
        nonlocal turns
        while not stop:
            turns += 1
            time.sleep(0)  # gives the interpreter back

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=count)
    thread.start()
    sys.setswitchinterval(1000)
    try:
        yield lambda: turns
    finally:
        sys.setswitchinterval(interval)
        stop = True
        thread.join()


def test_other_threads_run_during_long_calls(tmp_path: Path) -> None:
    """B4-07: whatever copies, hashes or waits does it without the interpreter."""
    with open_store(tmp_path, host_bytes="128 MiB") as store:
        ns = namespace(store)
        million = np.arange(1 << 20, dtype=np.int64)
        tokens, bodies = prompt(1, 800), stores.bodies(1, 800)
        out = np.empty_like(bodies)
        ids = stores.rows(3, 4, 32)
        big = [bytes(2 << 20)] * 4
        plan = ns.match(tokens)
        with another_thread() as turns:

            def during(call: Callable[[], Any]) -> Any:
                """Once is not enough: a short call may be over before the other thread wakes."""
                before = turns()
                deadline = time.monotonic() + 20
                while time.monotonic() < deadline:
                    result = call()
                    if turns() > before:
                        return result
                raise AssertionError("no other thread ran during the call")

            before = turns()
            for _ in range(1000):
                int(before)
            assert turns() == before, "the check itself: nobody takes the interpreter away"

            during(lambda: ns.keys(million))
            during(lambda: ns.match(million))
            during(lambda: ns.usage(million))
            batch = during(lambda: ns.put(tokens, bodies, ack="ssd"))
            during(lambda: batch.wait(PATIENCE))
            during(lambda: ns.keyed.put(ids, big))
            during(lambda: store.flush(PATIENCE))
            plan = ns.match(tokens)
            during(lambda: ns.get_into(plan, out))
            with during(lambda: ns.keyed.lease(ids)) as lease:
                during(lambda: bytes(lease[0]))
                during(lease[0].copy)
            during(lambda: ns.clear(erase=True))
        assert np.array_equal(out, bodies)


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs a script beside the tests in another process, and waits for its end."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=HERE,
        timeout=PATIENCE,
        check=False,
    )


FORK = """
    import gc, os, sys, threading
    import kvstore, stores

    path, other = sys.argv[1:]
    store = stores.open_store(path)
    ns = stores.namespace(store)
    tokens, bodies = stores.store_prompt(ns, 1, 4)
    plan = ns.match(tokens)
    lease = ns.lease(plan)
    view = lease[0]
    batch = ns.put(stores.prompt(2, 300), stores.bodies(2, 300), ack="ssd")

    def busy():  # the engine's locks are taken and given back all the time
        while not done:
            ns.match(tokens)

    done = False
    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    calls = {
        "match": lambda: ns.match(tokens),
        "lease": lambda: ns.lease(plan),
        "get_into": lambda: ns.get_into(plan, bytearray(plan.read_bytes)),
        "put": lambda: ns.put(tokens, bodies),
        "prefetch": lambda: ns.prefetch(plan),
        "explain": lambda: ns.explain(tokens),
        "clear": ns.clear,
        "keyed": lambda: ns.keyed.match(bytes(32)),
        "keyed put": lambda: ns.keyed.put(bytes(32), [b"x"]),
        "namespace": lambda: stores.namespace(store),
        "stats": store.stats,
        "flush": store.flush,
        "close": store.close,
        "wait": batch.wait,
        "status": lambda: batch.status,
        "fileno": batch.fileno,
        "view": lambda: memoryview(view),
        "bytes": lambda: bytes(view),
        "index": lambda: lease[0],
        "open": lambda: stores.open_store(path),
        "open other": lambda: stores.open_store(other),
    }
    for turn in range(20):
        child = os.fork()
        if child == 0:
            for name, call in calls.items():
                try:
                    call()
                except kvstore.ForkedError:
                    continue
                os.write(2, f"{name} did not raise ForkedError\\n".encode())
                os._exit(3)
            lease.close()
            del store, ns, lease, view, batch, plan, calls, call
            gc.collect()
            if turn % 2:
                os._exit(0)
            os._exit(0 if kvstore._core.close_all() is None else 4)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
    done = True
    for thread in threads:
        thread.join()
    assert batch.wait(30) and batch.status.accepted
    assert ns.match(tokens).usable == 256, "the parent is unharmed"
    assert bytes(view) == bodies[0].tobytes()
    assert store.close()
    child = os.fork()
    if child == 0:  # nothing is open: a child may open what it likes
        with stores.open_store(path) as store:
            assert stores.namespace(store).match(tokens).usable == 256
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print("fine")
"""


def test_a_forked_child_gets_a_named_error_and_never_hangs(tmp_path: Path) -> None:
    """B4-05, with threads that hold the engine's locks at the moment of the fork."""
    done = run(FORK, tmp_path / "store", tmp_path / "other")
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


MULTIPROCESSING = """
    import multiprocessing, sys
    import kvstore, stores

    def work(path):
        try:
            with stores.open_store(path, lock_wait=0) as store:
                return stores.namespace(store).match(stores.prompt(1, 4)).usable
        except kvstore.LockedError as error:
            return error.pid
        except kvstore.ForkedError as error:
            return "forked"

    def ask(method, path):
        with multiprocessing.get_context(method).Pool(1) as pool:
            return pool.apply_async(work, (path,)).get(30)

    if __name__ == "__main__":
        import os
        path, other = sys.argv[1:]
        with stores.open_store(path) as store:
            stores.store_prompt(stores.namespace(store), 1, 4)
            assert ask("spawn", path) == os.getpid(), "the error names the owner"
            assert ask("spawn", other) == 0
            assert ask("fork", path) == "forked"
        assert ask("spawn", path) == 256
        assert ask("fork", path) == 256
        print("fine")
"""


def test_workers_by_spawn_and_by_fork(tmp_path: Path) -> None:
    script = tmp_path / "workers.py"
    script.write_text(textwrap.dedent(MULTIPROCESSING))
    done = subprocess.run(
        [sys.executable, script, tmp_path / "store", tmp_path / "other"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(HERE)},
        timeout=2 * PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


BEGIN = """
    import os, signal, sys, threading, time
    import kvstore, stores

    store = stores.open_store(sys.argv[1], host_bytes="96 MiB")
    ns = stores.namespace(store)
    stores.store_prompt(ns, 1, 10)          # acknowledged by the disk
    lease = ns.lease(ns.match(stores.prompt(1, 10)))
    view = memoryview(lease[3])
    pending = ns.put(stores.prompt(2, 800), stores.bodies(2, 800))  # 20 MB on their way
    print("ready", flush=True)
"""

ENDS = {
    "return": "",
    "exception": "raise RuntimeError('on purpose')",
    "exit": "sys.exit(3)",
    "exit in a thread": """
    thread = threading.Thread(target=sys.exit)
    thread.start()
    thread.join()
    """,
    "daemon threads at work": """
    def work():
        while True:
            ns.lease(ns.match(stores.prompt(1, 10)))
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.1)
    """,
    "interrupt": "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
    "interrupt during a flush": """
    threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
    while True:
        ns.put(stores.prompt(time.monotonic_ns(), 100), stores.bodies(3, 100))
        store.flush(60)
    """,
    "interrupt during a wait": """
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    while True:
        ns.put(stores.prompt(time.monotonic_ns(), 100), stores.bodies(3, 100), ack="ssd").wait(60)
    """,
    "terminate": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)",
    "terminate during a flush": """
    threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGTERM)).start()
    while True:
        ns.put(stores.prompt(time.monotonic_ns(), 100), stores.bodies(3, 100))
        store.flush(60)
    """,
    "at once": "os._exit(0)",
}

CODES = {
    "exception": 1,
    "exit": 3,
    "interrupt": -signal.SIGINT,
    "interrupt during a flush": -signal.SIGINT,
    "interrupt during a wait": -signal.SIGINT,
    "terminate": -signal.SIGTERM,
    "terminate during a flush": -signal.SIGTERM,
}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends_in_any_way_and_keeps_what_was_acknowledged(
    tmp_path: Path, end: str
) -> None:
    """B4-06: no way to end hangs; what the disk acknowledged is there, byte for byte."""
    ending = textwrap.dedent(ENDS[end])
    done = run(textwrap.dedent(BEGIN) + ending, tmp_path)
    assert done.stdout == "ready\n", done.stderr
    assert done.returncode == CODES.get(end, 0), done.stderr
    with open_store(tmp_path, host_bytes="96 MiB") as store:
        ns = namespace(store)
        bodies = stores.bodies(1, 10)
        with ns.lease(ns.match(prompt(1, 10))) as lease:
            assert [bytes(view) for view in lease] == [body.tobytes() for body in bodies]
        later = stores.bodies(2, 800)
        with ns.lease(ns.match(prompt(2, 800))) as lease:
            assert all(bytes(lease[i]) == later[i].tobytes() for i in range(len(lease)))
            if end in ("return", "exception", "exit", "exit in a thread"):
                assert len(lease) == 800, "a normal end closes the store, which writes all"


TEN_BLOCKS = """
    import os, signal, sys
    import stores
    store = stores.open_store(sys.argv[1])
    stores.namespace(store).put(stores.prompt(1, 10), stores.bodies(1, 10))
"""

FLUSH_AND_TERMINATE = """
    assert store.flush(30)
    os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize("end", ["", FLUSH_AND_TERMINATE])
def test_what_survives_an_end_without_close(tmp_path: Path, end: str) -> None:
    """B2-16: a normal exit writes what is pending; `flush` makes it durable before a signal."""
    done = run(TEN_BLOCKS + end, tmp_path)
    assert done.returncode == (-signal.SIGTERM if end else 0), done.stderr
    with open_store(tmp_path) as store:
        recovered = store.stats()["recovered"]
        assert (recovered["objects"], recovered["damaged"]) == (10, 0)
        assert namespace(store).match(prompt(1, 10)).usable == 10 * BLOCK


def test_a_lock_names_its_owner(tmp_path: Path) -> None:
    script = """
        import sys
        import stores
        store = stores.open_store(sys.argv[1])
        print("open", flush=True)
        sys.stdin.read()
    """
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=HERE,
    )
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        with pytest.raises(kvstore.LockedError, match=f"process {owner.pid}") as raised:
            open_store(tmp_path, lock_wait=0)
        assert raised.value.pid == owner.pid
        owner.kill()
        owner.wait(PATIENCE)
    open_store(tmp_path).close()


def test_handles_that_are_dropped_close_the_store(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    stores.store_prompt(namespace(store), 1, 3)
    del store
    with open_store(tmp_path) as store:
        assert namespace(store).match(prompt(1, 3)).usable == 3 * BLOCK
