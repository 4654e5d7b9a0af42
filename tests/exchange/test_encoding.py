"""Plain values and tensors as bytes: all comes back; what others send runs nothing and takes no memory."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections import Counter, OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tweed.errors import DataError, UsageError
from tweed.exchange.encoding import STRUCTURE_BYTES, assembled, packed, structure, unpacked


@dataclass(frozen=True)
class Pair:
    left: Any
    right: tuple[int, ...] = ()


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.integers() | st.text() | st.tuples(st.integers()), inner)
    ),
    max_leaves=20,
)


def message(head: Any, tensors: bytes = b"") -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + tensors


@given(PLAIN)
def test_plain_values_come_back(value: Any) -> None:
    assert unpacked(packed(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        *(torch.Size([2, 0]), {1, 2}, Counter(a=2), OrderedDict(b=1, a=2), torch.bfloat16, float("inf")),
        Pair({"a": Pair(None)}, (1, 2)),
    ],
)
def test_kinds_stay_what_they_are(value: Any) -> None:
    found = unpacked(packed(value), classes=[Pair])
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("default", ["cpu", "meta"])
def test_tensors_come_back_bit_by_bit_whatever_the_default_device_is(default: str) -> None:
    tensors = [
        torch.tensor([1.5, torch.nan, -0.0]).bfloat16(),
        torch.tensor([[1 + 2j, 3j]]).conj(),
        torch.arange(6).reshape(2, 3).t(),
        torch.tensor(True),
        torch.empty(0, 3),
        nn.Parameter(torch.ones(2)),
    ]
    with torch.device(default):
        found = unpacked(packed({"tensors": tensors}))["tensors"]
    for given_, back in zip(tensors, found, strict=True):
        assert back.dtype is given_.dtype and back.device.type == "cpu" and not back.requires_grad
        assert torch.equal(torch.nan_to_num(back, 7), torch.nan_to_num(given_.detach(), 7))


@pytest.mark.parametrize(
    "value",
    [
        *(np.arange(6).reshape(2, 3).T, np.zeros((0, 3), np.uint16), np.array(True), np.array([1 + 2j])),
        *(np.float32(1.5), np.int64(-3), np.float16(np.inf)),
    ],
)
def test_arrays_and_scalars_of_numpy_come_back(value: Any) -> None:
    found = unpacked(packed([value]))[0]
    assert type(found) is type(value) and found.dtype == value.dtype
    np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("values", [["text"], [object()], np.arange(3).astype(">i4")])
def test_arrays_of_other_things_are_refused(values: Any) -> None:
    with pytest.raises(UsageError, match="ndarray"):
        packed(np.array(values))


def test_dataclasses_that_the_reader_does_not_know_can_be_refused() -> None:
    assert unpacked(packed(Pair(1), classes=[Pair]), classes=[Pair]) == Pair(1)
    with pytest.raises(UsageError, match="type Pair"):
        packed([Pair(1)], classes=())


def test_states_of_optimizers_and_schedules_come_back() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    schedule.step()
    for part in (model, optimizer, schedule):
        state = unpacked(packed(part.state_dict()))
        assert repr(state) == repr(type(state)(part.state_dict()))
        part.load_state_dict(state)


def test_equal_values_have_equal_bytes() -> None:
    one = "".join(["a", "b"])
    assert packed([one, one, torch.ones(1)]) == packed(["ab", one, torch.ones(2)[:1]])


@pytest.mark.parametrize("value", [object(), [print], {"a": {"b": Path("x")}}, torch.eye(2).to_sparse()])
def test_what_is_no_plain_value_is_refused_by_who_has_it(value: Any) -> None:
    with pytest.raises(UsageError, match="plain values and tensors"):
        packed(value)


def test_a_dataclass_that_is_not_awaited_is_refused() -> None:
    with pytest.raises(DataError, match="'Pair'"):
        unpacked(packed(Pair(1)))


def compressed() -> bytes:
    """Zeros in a thousandth of their bytes, which `torch.load(weights_only=True)` takes."""
    whole, packed_ = io.BytesIO(), io.BytesIO()
    torch.save(torch.zeros(1 << 20), whole)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(packed_, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return packed_.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        pickle.dumps([1]),
        compressed(),
        struct.pack("<Q", 1 << 62) + b"1",
        message(b"\xff"),
        message(b"[" * 100_000),
        message(b"9" * 10_000),
        message({}),
        message({"a": 1, "b": 2}),
        message({"object": {}}),
        message({"Popen": {"args": "id"}}),
        message({"dict": [[[], 1]]}),
        message({"dict": 7}),
        message({"bytes": "zz"}),
        message({"dtype": "torch.load"}),
        message({"tuple": 3}),
        message({"Size": ["a"]}),
        message({"tensor": []}),
        message({"tensor": ["torch.load", 1]}),
        message({"tensor": ["torch.float32", -1]}),
        message({"array": ["object", 1]}, bytes(8)),
        message({"array": ["bfloat16", 1]}, bytes(2)),
        message({"array": ["float32", 1 << 62]}),
        message({"scalar": []}),
        message({"tensor": ["torch.float32", True]}, bytes(4)),
        message({"tensor": ["torch.float32", *[1] * 100]}, bytes(4)),
        message({"tensor": ["torch.float32", 1 << 62, 1 << 62, 0]}),
        message({"tensor": ["torch.float32", 1]}, bytes(3)),
        message({"tensor": ["torch.float32", 1]}, bytes(5)),
    ],
)
def test_what_cannot_be_read_is_named(data: bytes) -> None:
    with pytest.raises(DataError, match=r"cannot be read|structure"):
        unpacked(data)


def test_a_shape_takes_no_memory_before_its_bytes_are_there() -> None:
    with pytest.raises(DataError, match=f"its structure says {4 << 40} or more"):
        unpacked(message({"tensor": ["torch.float32", 1 << 40]}))


def test_a_structure_is_not_longer_than_it_may_be() -> None:
    with pytest.raises(DataError, match="at most"):
        assembled(b" " * STRUCTURE_BYTES + b"1", b"")


@given(st.binary(max_size=200), st.integers(0, 200), st.data())
def test_no_bytes_make_the_reader_fail_otherwise_than_by_name(noise: bytes, at: int, draw: Any) -> None:
    sound = bytes(packed({"w": torch.ones(3), "s": (1, b"2", {3: [None]})}))
    for data in (noise, message(noise), sound[:at] + noise[:4] + sound[at + 4 :]):
        with suppress(DataError):
            unpacked(data)


def test_a_structure_has_shapes_and_no_bytes_of_tensors() -> None:
    head, (tensor,) = structure({"w": torch.ones(2, 3)})
    assert json.loads(head) == {"dict": [["w", {"tensor": ["torch.float32", 2, 3]}]]}
    assert tensor.shape == (2, 3)
