"""The reference models through a prefix cache: live bits at every cut, packed records included."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")

from kvstore.errors import InvalidArgument  # noqa: E402
from kvstore.models import deepseek  # noqa: E402
from kvstore.torch import PrefixCache  # noqa: E402
from torch_caches import (  # noqa: E402
    LONGEST,
    STEPS,
    LiveCaches,
    continued,
    opened,
    prompt,
    stored_everywhere,
)

pytestmark = pytest.mark.torch

FORMS = [
    (name, form)
    for name in deepseek.NAMES
    for form in ("native", "bf16")
    if not (form == "native" and name.startswith("deepseek-llm"))
]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_restored_at_boundary_lengths(name: str, form: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    model = deepseek.build(name, toy=True, form=form)
    ids = prompt(LONGEST + sum(STEPS))
    with opened(tmp_path) as store:
        prefix = stored_everywhere(store, model)
        block = prefix.layout.block_tokens
        prefix.prefill(ids[:, :LONGEST])
        live = LiveCaches(prefix.binding, ids)
        for n in (1, 5, 64, 65, 127, 128, 129, 131, 255, 256, 257, 300):
            cache, usable = prefix.restore(ids[:, :n])
            assert usable == (n - 1) // block * block
            got = continued(prefix.binding, cache, ids, usable, n)
            want = continued(prefix.binding, live.at(usable), ids, usable, n)
            assert torch.equal(got, want), f"cut {n}"


def test_a_session_of_one(tmp_path: Path) -> None:
    """Their forward calls are followed as those of transformers are."""
    torch.set_num_threads(1)
    model = deepseek.build("deepseek-v3", toy=True)
    ids = prompt(200)
    with opened(tmp_path) as store:
        prefix = PrefixCache(store, model)
        with prefix.session(ids) as session:
            logits = model(ids[:, session.length :], cache=session.cache)[:, -1]
            for _ in range(70):
                logits = model(logits.argmax(dim=-1, keepdim=True), cache=session.cache)[:, -1]
        assert (session.length, session.saved.tokens) == (270, 256)
        out = torch.tensor([session._opened.ids])
        assert prefix.restore(out)[1] == 256


def test_options_that_the_model_fixes(tmp_path: Path) -> None:
    model = deepseek.build("deepseek-v3", toy=True)
    with opened(tmp_path) as store:
        with pytest.raises(InvalidArgument, match="form = 'native': the model was built with"):
            PrefixCache(store, model, form="native")
        with pytest.raises(InvalidArgument, match="block_tokens = 16"):
            PrefixCache(store, model, block_tokens=16)
