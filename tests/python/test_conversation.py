"""A conversation of many turns: each goes on where the one before it ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import kvstore
import numpy as np
import pytest
import stores
from hypothesis import given, settings
from hypothesis import strategies as st
from kvstore.layouts import Layout
from stores import BLOCK, LAYOUT, namespace, open_store

#: Entries and a window that a bounded replay rebuilds, as DeepSeek V4.1 does.
REPLAYED = Layout.named(
    "small",
    toml=f"""
[[arch]]
name = "small"
layers = 4
block_tokens = {BLOCK}
source = "made for this test"
forms = ["dense"]
replay = {{ bounded = 32, extra_ids = 3 }}

[[arch.group]]
name = "kv"
layers = [0, 1]
heads = 1
dim = 4

[[arch.group]]
name = "local"
layers = [2, 3]
kind = "window"
window = 32
heads = 1
dim = 4
""",
)

TURNS = 20
#: Tokens of the question and of the answer, turn by turn.
Turns = list[tuple[int, int]]
LENGTHS = st.lists(
    st.tuples(st.integers(1, 3 * BLOCK), st.integers(0, 2 * BLOCK)), min_size=TURNS, max_size=TURNS
)


class Conversation:
    """What was said so far, and the bodies that were stored for it."""

    def __init__(self, layout: Layout, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.layout = layout
        self.tokens: list[int] = []
        self.bodies: list[bytes] = []
        #: The first block that was stored after a bounded replay.
        self.mark: int | None = None

    def say(self, count: int) -> None:
        self.tokens += self.random.integers(0, 2**31, count).tolist()

    def turn(self, ns: kvstore.Namespace, question: int, answer: int, *, approximate: bool) -> None:
        """Asks, checks that all whole blocks of the turns before are hit, answers, and stores."""
        self.say(question)
        before = len(self.bodies) * BLOCK
        plan = ns.match(self.tokens, allow_approximate=approximate)
        assert (plan.matched, plan.usable, plan.replayed_from) == (before, before, self.mark)
        with ns.lease(plan) as lease:
            assert [bytes(body) for body in lease] == self.bodies
        mark = self.mark
        if plan.mode == "bounded_replay" and mark is None:
            mark = len(self.bodies)
        self.say(answer)
        new = self.random.integers(
            0, 256, (len(self.tokens) // BLOCK - len(self.bodies), self.layout.body_bytes), np.uint8
        )
        if len(new):
            batch = ns.put(
                self.tokens, new, first_block=len(self.bodies), replayed_from=mark, ack="ssd"
            )
            assert batch.wait(60)
            assert [status.name for status in batch.status] == ["stored"] * len(new)
            self.bodies += [body.tobytes() for body in new]
            self.mark = mark


def hold(talk: Conversation, turns: Sequence[tuple[int, int]], *, approximate: bool) -> None:
    """All turns; the store is closed and opened again in the middle."""
    with TemporaryDirectory() as folder:
        for half in (turns[: TURNS // 2], turns[TURNS // 2 :]):
            with open_store(Path(folder)) as store:
                ns = namespace(store, talk.layout)
                for question, answer in half:
                    talk.turn(ns, question, answer, approximate=approximate)
        with open_store(Path(folder)) as store:
            exact = namespace(store, talk.layout).match([*talk.tokens, 0]).matched
    last = len(talk.bodies) if talk.mark is None else talk.mark
    assert exact == last * BLOCK, "who wants exact bytes sees none behind the mark"


@pytest.mark.parametrize("approximate", [False, True])
@settings(max_examples=6, deadline=None)
@given(turns=LENGTHS, seed=st.integers(0, 2**32))
def test_each_turn_hits_all_of_the_one_before(approximate: bool, turns: Turns, seed: int) -> None:
    talk = Conversation(LAYOUT, seed)
    hold(talk, turns, approximate=approximate)
    assert talk.mark is None, "nothing is replayed where entries are all there is"


@settings(max_examples=8, deadline=None)
@given(turns=LENGTHS, seed=st.integers(0, 2**32))
def test_a_replayed_chain_goes_on_as_one(turns: Turns, seed: int) -> None:
    talk = Conversation(REPLAYED, seed)
    hold(talk, turns, approximate=True)


def test_a_chain_is_marked_once(tmp_path: Path) -> None:
    """The mark is where the first turn that was computed after a replay began, for good."""
    talk = Conversation(REPLAYED, 1)
    with open_store(tmp_path) as store:
        ns = namespace(store, REPLAYED)
        for _ in range(TURNS):
            talk.turn(ns, stores.BLOCK, 10, approximate=True)
        assert talk.mark == 1
        assert ns.match(talk.tokens).matched == BLOCK
        assert ns.match(talk.tokens, allow_approximate=True).matched == len(talk.bodies) * BLOCK
