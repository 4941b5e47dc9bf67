"""Fingerprints of weights in memory: what changes them, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kvstore
import numpy as np
import pytest
from kvstore.models import families

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")
pytestmark = pytest.mark.torch

from kvstore.torch import weights as module  # noqa: E402
from kvstore.torch.framed import SAMPLE, sample_spans  # noqa: E402
from kvstore.torch.weights import fingerprint  # noqa: E402


def _state() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    return {
        "b.weight": torch.randn(40, 30, generator=generator),
        "a.weight": torch.randn(8, generator=generator).bfloat16(),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "counts": torch.arange(5),
    }


def _change_value(state: dict[str, Any]) -> None:
    state["b.weight"][17, 3] = torch.nextafter(state["b.weight"][17, 3], torch.tensor(9.0))


def _change_scalar(state: dict[str, Any]) -> None:
    state["scalar"] += 1


def _change_dtype(state: dict[str, Any]) -> None:
    state["a.weight"] = state["a.weight"].view(torch.float16)  # the same bytes


def _change_shape(state: dict[str, Any]) -> None:
    state["b.weight"] = state["b.weight"].reshape(30, 40)  # the same bytes


def _change_empty(state: dict[str, Any]) -> None:
    state["empty"] = torch.zeros(4, 0)


def _change_name(state: dict[str, Any]) -> None:
    state["c.weight"] = state.pop("b.weight")


def _add(state: dict[str, Any]) -> None:
    state["d"] = torch.zeros(0)


@pytest.mark.parametrize("kind", ["full", "sampled"])
@pytest.mark.parametrize(
    "change",
    [
        _change_value,
        _change_scalar,
        _change_dtype,
        _change_shape,
        _change_empty,
        _change_name,
        _add,
    ],
)
def test_any_change_changes_it(change: Callable[[dict[str, Any]], None], kind: Any) -> None:
    before, state = fingerprint(_state(), kind), _state()
    assert before == fingerprint(state, kind), "the same weights"
    assert (before.kind, len(before.digest)) == (kind, 32)
    change(state)
    assert fingerprint(state, kind).digest != before.digest


def test_order_device_view_and_package_do_not() -> None:
    state = _state()
    before = fingerprint(state)
    assert before.kind == "full"
    assert fingerprint(dict(reversed(state.items()))) == before
    state["b.weight"] = state["b.weight"].t().contiguous().t()  # other strides, same values
    assert fingerprint(state) == before
    del state["a.weight"]  # numpy has no bfloat16
    arrays = {name: tensor.numpy() for name, tensor in state.items()}
    assert fingerprint(arrays) == fingerprint(state)


def test_it_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fingerprint(_state())
    monkeypatch.setattr("kvstore.torch.framed.CHUNK", 100)
    assert fingerprint(_state()) == whole


def test_a_sample_sees_ends_and_middle_only() -> None:
    state = {"w": torch.zeros(1_000_000)}
    before = fingerprint(state, "sampled")
    spans = sample_spans(4_000_000)
    assert sum(end - start for start, end in spans) == SAMPLE
    assert (spans[0][0], spans[-1][1]) == (0, 4_000_000)
    for place, seen in [(0, True), (999_999, True), (spans[7][0] // 4 + 1, True), (5000, False)]:
        changed = {"w": state["w"].clone()}
        changed["w"][place] = 1
        assert (fingerprint(changed, "sampled") != before) is seen
    assert fingerprint(state, "sampled") != fingerprint(state, "full")


def test_tied_tensors_count_once_and_by_name() -> None:
    shared = torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
    tied = {"embed": shared, "head": shared}
    assert fingerprint(tied) == fingerprint({"head": shared, "embed": shared})
    other = {"embed": shared, "neck": shared}
    assert fingerprint(tied) != fingerprint(other)
    before = fingerprint(tied)
    shared[3, 3] += 1
    assert fingerprint(tied) != before


def test_a_model() -> None:
    model = families.toy_model("llama")
    before = fingerprint(model)
    assert before == fingerprint(families.toy_model("llama"))
    assert before == fingerprint(model.state_dict())
    assert before != fingerprint(families.toy_model("llama", seed=1))
    assert before != fingerprint(families.toy_model("llama", dtype="bfloat16"))
    with torch.no_grad():
        model.model.layers[2].mlp.up_proj.weight[5, 5] += 1e-3
    assert fingerprint(model) != before


def test_persistent_buffers_count_and_others_do_not() -> None:
    model = families.toy_model("deepseek_v3")
    before = fingerprint(model)
    bias = next(b for n, b in model.named_buffers() if n.endswith("e_score_correction_bias"))
    bias[1] += 1
    assert fingerprint(model) != before, "it decides which experts answer"
    bias[1] -= 1
    assert fingerprint(model) == before
    model.model.rotary_emb.inv_freq[0] += 1
    assert fingerprint(model) == before, "made from the configuration: describe() has it"


class _Scaled(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A layer whose state has what is no tensor, as quantising packages do it."""

    def __init__(self, extra: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.extra = extra

    def get_extra_state(self) -> Any:
        return self.extra


def test_extra_state() -> None:
    prints = [
        fingerprint(_Scaled(extra)).digest
        for extra in ({"scale": 1.0}, {"scale": 2.0}, [torch.zeros(2)], [torch.ones(2)], b"x", None)
    ]
    assert len(set(prints)) == len(prints)


@pytest.mark.filterwarnings("ignore")
def test_quantised_tensors() -> None:
    values = torch.arange(32.0).reshape(4, 8)
    scales, zeros = torch.full((4,), 0.5), torch.zeros(4)
    one = torch.quantize_per_tensor(values, 0.5, 0, torch.qint8)
    others = [
        torch.quantize_per_tensor(values, 0.25, 0, torch.qint8),
        torch.quantize_per_tensor(values, 0.5, 1, torch.qint8),
        torch.quantize_per_channel(values, scales, zeros, 0, torch.qint8),
        torch.quantize_per_channel(values, scales * 2, zeros, 0, torch.qint8),
        one.int_repr(),
    ]
    prints = {fingerprint({"w": tensor}).digest for tensor in (one, *others)}
    assert len(prints) == 6
    again = torch.quantize_per_tensor(values, 0.5, 0, torch.qint8)
    assert fingerprint({"w": one}) == fingerprint({"w": again})


def test_eight_bit_floats_and_complex_numbers() -> None:
    low = torch.ones(16).to(torch.float8_e4m3fn)
    high = low.clone()
    high.view(torch.uint8)[3] += 1
    assert fingerprint({"w": low}) != fingerprint({"w": high})
    number = torch.tensor([1 + 2j])
    assert fingerprint({"w": number.conj()}) != fingerprint({"w": number})


class _Pair(torch.Tensor):  # type: ignore[misc, name-defined]
    """A tensor made of two, as torchao's quantised ones are."""

    codes: Any
    scale: Any

    @staticmethod
    def __new__(cls, codes: Any, scale: Any) -> _Pair:
        made: _Pair = torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)
        made.codes, made.scale = codes, scale
        return made

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["codes", "scale"], {"block": 32}

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> _Pair:
        return cls(inner["codes"], inner["scale"])

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError(f"{function}: it is hashed by its parts")


def test_tensors_that_are_made_of_others() -> None:
    def of(code: int, scale: float) -> bytes:
        codes = torch.full((4, 4), code, dtype=torch.uint8)
        return fingerprint({"w": _Pair(codes, torch.tensor([scale]))}).digest

    assert of(1, 0.5) == of(1, 0.5)
    assert len({of(1, 0.5), of(2, 0.5), of(1, 0.25)}) == 3


def test_what_has_no_bytes_is_refused() -> None:
    with pytest.raises(kvstore.InvalidArgument, match="'w' is on the meta device"):
        fingerprint({"w": torch.zeros(4, device="meta")})
    with pytest.raises(kvstore.InvalidArgument, match=r"'w' is torch\.sparse_coo"):
        fingerprint({"w": torch.eye(3).to_sparse()})
    with pytest.raises(kvstore.InvalidArgument, match="a list has no weights"):
        fingerprint([torch.zeros(3)])


def test_large_weights_ask_for_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FULL_LIMIT", 1000)
    with pytest.raises(kvstore.InvalidArgument, match=r"full.*sampled.*hub.*cached") as raised:
        fingerprint(_state())
    assert "4,8" in str(raised.value)
    assert fingerprint(_state(), "full").kind == "full"


def test_kinds_of_files_and_names_are_not_for_models() -> None:
    for kind in ("hub", "cached"):
        with pytest.raises(kvstore.InvalidArgument, match=f"{kind}.* may differ from those"):
            fingerprint(_state(), kind)
    with pytest.raises(kvstore.InvalidArgument, match="full, hub, cached, sampled, name"):
        fingerprint(_state(), "half")  # type: ignore[arg-type]


def test_a_name_must_be_allowed() -> None:
    with pytest.raises(kvstore.InvalidArgument, match="allow_weights_by_name=True"):
        fingerprint("demo", "name")
    assert fingerprint("demo", "name", allow_weights_by_name=True) == ("name", b"demo")
    with pytest.raises(kvstore.InvalidArgument, match="takes the name of a model"):
        fingerprint({"w": np.zeros(2)}, "name", allow_weights_by_name=True)
