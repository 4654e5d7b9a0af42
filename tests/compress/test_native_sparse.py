"""Choosing numbers and coding indices: the native way and torch's against plain Python, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tweed.compress.native import sparse
from tweed.errors import DataError, UsageError

HUGE, TINY = 3.0e38, 1.0e-45  # near the ends of float32: the latter is its least denormal number


@pytest.fixture(params=["native", "torch"], scope="module", autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """All tests run both ways."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "torch":
            patch.setattr(sparse, "_native", lambda *tensors: False)
        yield


def _zeros(numel: int, seed: int) -> Tensor:
    """99.5 % zeros of both signs."""
    x = _gaussian(numel, seed)
    keep = torch.rand(numel, generator=torch.Generator().manual_seed(seed + 1)) < 0.005
    return torch.where(keep, x, x * 0)


def _gaussian(numel: int, seed: int) -> Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


KINDS: dict[str, Callable[[int, int], Tensor]] = {
    "gaussian": _gaussian,
    "heavy-tailed": lambda numel, seed: _gaussian(numel, seed) * _gaussian(numel, seed + 1).mul(4).exp(),
    "99.5 % zero": _zeros,
    "constant": lambda numel, seed: torch.full((numel,), -1.5),
    "ascending": lambda numel, seed: _gaussian(numel, seed).sort().values,
    "descending": lambda numel, seed: _gaussian(numel, seed).sort(descending=True).values,
    "few values": lambda numel, seed: _gaussian(numel, seed).round(),
    "denormal": lambda numel, seed: _gaussian(numel, seed) * 1e-39,
    "huge": lambda numel, seed: _gaussian(numel, seed).clamp(-1, 1) * HUGE,
    "zero": lambda numel, seed: torch.zeros(numel),
    "late": lambda numel, seed: torch.where(torch.arange(numel) < numel // 2, TINY, _gaussian(numel, seed)),
}
LENGTHS = [0, 1, 2, 15, 16, 17, 63, 64, 65, 1000, 3000]


@st.composite
def numbers(draw: st.DrawFn, least: int = 0) -> Tensor:
    """Single floats of all kinds, or many of one kind."""
    if draw(st.booleans()):
        finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
        return torch.tensor(draw(st.lists(finite, min_size=least, max_size=200)), dtype=torch.float32)
    numel = draw(st.integers(max(1, least), 5000))
    return KINDS[draw(st.sampled_from(list(KINDS)))](numel, draw(st.integers(0, 2**31)))


def plain_top_k(x: Tensor, count: int) -> list[int]:
    values = x.tolist()
    return sorted(sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))[:count])


def bits(x: Tensor) -> list[int]:
    return x.contiguous().view(torch.int32).tolist()


def assert_chosen(sent: Any, expected: list[int], x: Tensor, error: Tensor | None = None) -> None:
    """`sent` are the numbers of `x` at `expected`, and `error` is the rest."""
    indices, values = sent
    assert (indices.dtype, values.dtype) == (torch.int32, torch.float32)
    assert indices.tolist() == expected
    assert bits(values) == bits(x[expected])
    if error is not None:
        rest = x.clone()
        rest[expected] = 0
        assert bits(error) == bits(rest)


@given(numbers(), st.floats(0, 1))
def test_top_k_is_exact_and_ties_go_to_the_lowest_index(x: Tensor, share: float) -> None:
    count = round(share * len(x))
    assert_chosen(sparse.top_k(x, count), plain_top_k(x, count), x)


@given(numbers(), st.floats(0, 1), st.integers(0, 1000))
def test_what_top_k_leaves_is_kept(x: Tensor, share: float, seed: int) -> None:
    before = _gaussian(len(x), seed) * x.abs().clamp(max=1e30)
    error, count = before.clone(), round(share * len(x))
    both = x + before
    assert_chosen(sparse.top_k(x, count, error), plain_top_k(both, count), both, error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("numel", LENGTHS)
def test_every_kind_at_every_length(kind: str, numel: int) -> None:
    x = KINDS[kind](numel, 7)
    count = -(-numel // 100)
    assert_chosen(sparse.top_k(x, count), plain_top_k(x, count), x)
    if count:
        assert sparse.kth_magnitude(x, count) == min(abs(x[i].item()) for i in plain_top_k(x, count))


@given(numbers(), st.floats(0, 4), st.booleans())
def test_a_threshold_takes_all_that_reach_it(x: Tensor, tau: float, fed: bool) -> None:
    error = torch.full_like(x, 0.25) if fed else None
    both = x + 0.25 if fed else x
    tau = float(torch.tensor(tau))
    expected = [i for i, value in enumerate(both.tolist()) if abs(value) >= tau]
    assert_chosen(sparse.threshold(x, tau, error), expected, both, error)


@given(numbers(), st.floats(0, 4), st.integers(0, 100), st.booleans())
def test_of_those_that_reach_a_threshold_the_largest_are_taken(
    x: Tensor, tau: float, most: int, fed: bool
) -> None:
    error = torch.full_like(x, 0.25) if fed else None
    both = x + 0.25 if fed else x
    tau = float(torch.tensor(tau))
    reach = sum(abs(value) >= tau for value in both.tolist())
    *sent, found = sparse.largest_above(x, tau, most, error)
    assert found == reach
    assert_chosen(sent, plain_top_k(both, min(reach, most)), both, error)


def test_thresholds_at_their_ends() -> None:
    x = torch.tensor([0.0, -0.0, TINY, -1.0, HUGE])
    assert sparse.threshold(x, 0.0)[0].tolist() == [0, 1, 2, 3, 4]
    assert sparse.threshold(x, TINY)[0].tolist() == [2, 3, 4]
    assert sparse.threshold(x, math.inf)[0].tolist() == []


@given(numbers(least=1), st.integers(0))
def test_the_kth_magnitude(x: Tensor, drawn: int) -> None:
    count = 1 + drawn % len(x)
    assert sparse.kth_magnitude(x, count) == sorted(map(abs, x.tolist()), reverse=True)[count - 1]


@given(numbers())
def test_nonzero_numbers(x: Tensor) -> None:
    assert_chosen(sparse.nonzero(x), [i for i, value in enumerate(x.tolist()) if value != 0], x)


@given(numbers(least=1), st.integers(0, 2**31))
def test_numbers_are_added_and_fetched_where_they_belong(x: Tensor, seed: int) -> None:
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).int()
    indices = order[: len(x) // 2 + 1]
    values = _gaussian(len(indices), seed)
    out, expected = x.clone(), x.clone()
    for index, value in zip(indices.tolist(), values, strict=True):
        expected[index] += value
    sparse.scatter_add(out, indices, values)
    assert bits(out) == bits(expected)
    assert bits(sparse.gather(x, indices)) == bits(x[indices.long()])


@given(numbers(least=1), st.sampled_from([math.inf, -math.inf, math.nan]), st.integers(0))
def test_one_number_that_is_not_finite_is_found(x: Tensor, bad: float, at: int) -> None:
    assert sparse.all_finite(x)
    x[at % len(x)] = bad
    assert not sparse.all_finite(x)


@st.composite
def ascending(draw: st.DrawFn) -> tuple[Tensor, int]:
    """Indices of various densities, and how many numbers they are of."""
    gap = st.one_of(st.integers(0, 3), st.integers(0, 1000), st.integers(0, 2**20))
    gaps = draw(st.lists(gap, max_size=300))
    indices = (torch.tensor(gaps, dtype=torch.int64) + 1).cumsum(0) - 1
    return indices.int(), int(indices[-1]) + draw(st.integers(1, 100)) if gaps else draw(st.integers(0, 100))


@given(ascending())
def test_gaps_come_back_as_indices(case: tuple[Tensor, int]) -> None:
    indices, numel = case
    data = sparse.delta_encode(indices, numel)
    assert bytes(data.tolist()) == _plain_gaps(indices.tolist())
    decoded = sparse.delta_decode(data, len(indices), numel)
    assert decoded.dtype == torch.int32
    assert decoded.tolist() == indices.tolist()


def _plain_gaps(indices: list[int]) -> bytes:
    gaps = [after - before - 1 for before, after in zip([-1, *indices], indices, strict=False)]
    blocks = [gaps[at : at + 32] for at in range(0, len(gaps), 32)]
    widths = [max(block).bit_length() for block in blocks]
    packed = b""
    for width, block in zip(widths, blocks, strict=True):
        number = sum(gap << (width * place) for place, gap in enumerate(block))
        packed += number.to_bytes((width * len(block) + 7) // 8, "little")
    return bytes(widths) + packed


@given(ascending().filter(lambda case: case[1] < 2**16))
def test_bits_come_back_as_indices(case: tuple[Tensor, int]) -> None:
    indices, numel = case
    data = sparse.bitmap_encode(indices, numel)
    assert int.from_bytes(bytes(data.tolist()), "little") == sum(1 << index for index in indices.tolist())
    assert sparse.bitmap_decode(data, len(indices), numel).tolist() == indices.tolist()


def test_the_farthest_index_is_coded() -> None:
    indices = torch.tensor([2**31 - 2], dtype=torch.int32)
    data = sparse.delta_encode(indices, 2**31 - 1)
    assert sparse.delta_decode(data, 1, 2**31 - 1).tolist() == [2**31 - 2]


def test_random_indices_cost_the_bits_that_are_stated() -> None:
    numel, count = 1_000_000, 10_000
    indices = torch.randperm(numel, generator=torch.Generator().manual_seed(3))[:count].sort().values.int()
    bits_each = 8 * len(sparse.delta_encode(indices, numel)) / count
    assert abs(bits_each - (math.log2(numel / count) + 2.7)) < 0.1


@given(st.binary(max_size=60), st.integers(0, 80), st.integers(0, 300))
def test_foreign_bytes_are_indices_or_are_refused(data: bytes, count: int, numel: int) -> None:
    foreign = torch.tensor(list(data), dtype=torch.uint8)
    for decode in (sparse.delta_decode, sparse.bitmap_decode):
        try:
            indices = decode(foreign, count, numel).tolist()
        except DataError:
            continue
        assert len(indices) == count
        assert indices == sorted(set(indices))
        assert not indices or (0 <= indices[0] and indices[-1] < numel)


def test_bytes_of_another_length_are_refused() -> None:
    indices = torch.tensor([3, 5, 99], dtype=torch.int32)
    for encode, decode in (
        (sparse.delta_encode, sparse.delta_decode),
        (sparse.bitmap_encode, sparse.bitmap_decode),
    ):
        data = encode(indices, 100)
        wrong = [(other, 3, 100) for other in (data[:-1], torch.cat([data, data[:1]]), data[:0])]
        for case in [*wrong, (data, 2, 100), (data, 4, 100), (data, 3, 99)]:
            with pytest.raises(DataError):
                decode(*case)


X, AT = torch.ones(4), torch.tensor([0, 3], dtype=torch.int32)
REFUSED: dict[str, tuple[Any, ...]] = {
    "too many": (sparse.top_k, X, 5), "fewer than none": (sparse.top_k, X, -1),
    "no number of that rank": (sparse.kth_magnitude, X, 0), "doubles": (sparse.top_k, X.double(), 1),
    "a matrix": (sparse.threshold, X.view(2, 2), 1.0),
    "an error of another length": (sparse.top_k, X, 1, torch.ones(3)),
    "a negative magnitude": (sparse.threshold, X, -1.0), "no magnitude": (sparse.threshold, X, math.nan),
    "wide indices": (sparse.gather, X, AT.long()), "an index too high": (sparse.gather, X[:3], AT),
    "an index too low": (sparse.gather, X, -AT), "values of another length": (sparse.scatter_add, X, AT, X),
    "indices twice": (sparse.delta_encode, AT * 0, 4),
    "indices that descend": (sparse.bitmap_encode, AT.flip(0), 4),
    "indices beyond": (sparse.delta_encode, AT, 3), "no bytes": (sparse.delta_decode, AT, 2, 4),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_calls_that_cannot_be_carried_out_are_refused(case: str) -> None:
    call, *arguments = REFUSED[case]
    with pytest.raises(UsageError):
        call(*arguments)
