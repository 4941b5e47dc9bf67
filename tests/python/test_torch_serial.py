"""Trees of tensors as bytes: exact, and never read as anything but what was written."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs torch")
pytestmark = pytest.mark.torch

from kvstore._core import Blake3  # noqa: E402
from kvstore.torch.errors import Unreadable, Unsupported  # noqa: E402
from kvstore.torch.serial import decode, encode  # noqa: E402

CPU = torch.device("cpu")
DTYPES = [
    *(torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.bool),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.uint8, torch.int8, torch.int64, torch.uint16),
]
TREE: dict[str, Any] = {
    "keys": (torch.arange(24).view(2, 3, 4).float(), torch.tensor(0.1)),
    "meta": {"shape": torch.Size([1, 2]), 3: None, "nbits": 4, "on": True, "dtype": torch.bfloat16},
    "numbers": [0.1, -0.0, math.inf, 1 << 70, "text \N{GREEK SMALL LETTER PI}"],
    "device": CPU,
}


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        as_bytes = [t.contiguous().reshape(-1).view(torch.uint8) for t in (one, other)]
        equal: bool = torch.equal(*as_bytes)
        return equal and one.dtype == other.dtype and one.shape == other.shape
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 5), (2, 3, 5)])
def test_tensors_come_back(dtype: Any, shape: tuple[int, ...]) -> None:
    size = math.prod(shape) * dtype.itemsize
    data = torch.randint(0, 2 if dtype == torch.bool else 256, (size,), dtype=torch.uint8)
    tensor = data.view(dtype).view(shape)
    # Of any strides: the rows are written in order.
    for written in (tensor, tensor.movedim(0, -1), tensor[..., :1]) if shape else (tensor,):
        read = decode(encode([written]), CPU)[0]
        assert same(read, written)
        assert read.is_contiguous()


def test_trees_come_back() -> None:
    read = decode(encode(TREE), CPU)
    assert same(read, TREE)
    assert math.isnan(decode(encode(math.nan), CPU))
    # Equal trees are equal bytes.
    assert torch.equal(encode(TREE), encode(read))


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": [1, {2}]}, r"tree\.a\[1\] is a set"),
        ((object(),), r"tree\[0\] is a object"),
        ({1.5: 2}, "the key 1.5"),
        ([torch.eye(2).to_sparse()], r"tree\[0\] is a Tensor"),
        ([torch.nn.Parameter(torch.ones(1))], r"tree\[0\] is a Parameter"),
        (b"bytes", "tree is a bytes"),
    ],
)
def test_other_types_are_refused(tree: Any, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        encode(tree)


def test_every_changed_or_missing_byte_is_seen() -> None:
    data = encode(TREE)
    for at in range(len(data)):
        changed = data.clone()
        changed[at] ^= 1 << (at % 8)
        with pytest.raises(Unreadable):
            decode(changed, CPU)
    for length in range(len(data)):
        with pytest.raises(Unreadable):
            decode(data[:length], CPU)
    with pytest.raises(Unreadable):
        decode(torch.cat([data, data[:64]]), CPU)


def forged(header: Any, size: int = 64) -> Any:
    """An object with this header and a right digest."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    head = b"KVTREE\1\0" + struct.pack("<QQQ", 64 + len(text) + size, len(text), 0)
    rest = text + bytes(size)
    hasher = Blake3()
    hasher.update(head + rest)
    return torch.frombuffer(bytearray(head + hasher.digest() + rest), dtype=torch.uint8)


WRONG: list[Any] = [
    {"tensor": ["float32", [17], 0]},  # longer than what is there
    {"tensor": ["float32", [1], 64]},
    {"tensor": ["float32", [1], 4]},
    {"tensor": ["float32", [1], -64]},
    {"tensor": ["float32", [-1], 0]},
    {"tensor": ["float32", [True], 0]},
    {"tensor": ["float32", [1 << 59, 1 << 59, 0], 0]},
    {"tensor": ["nn", [1], 0]},
    {"tensor": ["float32", [1]]},
    {"dtype": "load"},
    {"float": "x"},
    {"float": "0x1p99999"},
    {"size": [1.5]},
    {"device": "cuda:7"},
    {"dict": [[{"list": []}, 1]]},
    {"dict": [[1]]},
    {"list": 3},
    {"os.system": "true"},
    {"wrapped": {"list": ["Popen", {"dict": []}, {"dict": []}, {"size": []}, {"list": []}]}},
    {"wrapped": {"list": []}},
    {},
    [],
    1.5,
    b"{",
    b"[" * 100_000,
    b'{"list": [' * 500 + b"]}" * 500,
]


@pytest.mark.parametrize("header", WRONG, ids=lambda header: repr(header)[:30])
def test_wrong_headers_are_refused(header: Any) -> None:
    with pytest.raises(Unreadable):
        decode(forged(header), CPU)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["list", "tuple", "dict", "tensor", "wrapped", "size", "float", "dtype"]
            ),
            inner,
            max_size=2,
        )
    ),
    max_leaves=12,
)


@given(JSON)
@settings(max_examples=300, deadline=None)
def test_any_header_is_read_or_refused(header: Any) -> None:
    with contextlib.suppress(Unreadable):
        encode(decode(forged(header), CPU))
