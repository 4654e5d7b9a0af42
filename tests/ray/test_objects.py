"""Objects between processes: four of them, forked; one is killed; and every wrong use has its words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.ray.fleet import PATIENCE_S, Fleet
from tweed.errors import DeadlineExceeded, ShapeMismatch, TweedError, UsageError
from tweed.ray.objects import Future, Objects, Reduced, Ref, Writer, wait

LARGE = 1 << 18


class Visited(Fleet):
    """A fleet that this process has met, too."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.here = Objects()
        assert self.here.meet(list(self.descriptors.values())) == {}

    def close(self) -> None:
        self.here.close()
        super().close()


@pytest.fixture
def fleet() -> Iterator[Visited]:
    fleet = Visited(4)
    yield fleet
    fleet.close()


def _put(objects: Objects, ref: Ref, value: float, numel: int) -> None:
    objects.put(np.full(numel, value, np.float32), ref)


def _get(objects: Objects, ref: Ref) -> float | str:
    """The one value of an array, or the error."""
    try:
        array = objects.get(ref, timeout=PATIENCE_S).result()
    except TweedError as error:
        return str(error)
    assert array.flags.writeable is False
    (value,) = set(array.tolist())
    return float(value)


_unfinished: list[Writer] = []  # of the process that calls


def _half(objects: Objects, ref: Ref, value: float, numel: int) -> None:
    """Writes the first half of an object."""
    writer = objects.create((numel,), np.float32, ref)
    _unfinished.append(writer)
    writer.array[: numel // 2] = value
    writer.advance(numel // 2)


@pytest.mark.parametrize("numel", [10, LARGE])
def test_what_is_deleted_takes_no_memory_once_nobody_holds_it(numel: int) -> None:
    with Objects() as one, Objects() as other:
        other.meet([one.descriptor])
        ref = one.put(np.zeros(numel, np.float32))
        array = other.get(ref).result(PATIENCE_S)
        one.delete(ref)
        assert other.used >= array.nbytes
        del array
        while one.used or other.used:
            pass


@pytest.mark.parametrize("numel", [10, LARGE])
def test_what_one_puts_or_sums_all_get(fleet: Visited, numel: int) -> None:
    refs, target = [Ref.new() for _ in range(3)], Ref.new()
    for rank in (2, 3):
        fleet.start(rank, _get, target)  # before there is anything
    sums = fleet.here.reduce(refs, target=target, timeout=PATIENCE_S)
    for rank, ref in enumerate(refs[:2]):
        fleet.on(rank, _put, ref, 1.5 + rank, numel)
    fleet.here.put(np.full(numel, 4.0, np.float32), refs[2])
    assert set(sums.result().array.tolist()) == {8.0} and sums.result().refs == set(refs)
    assert [fleet.end(rank) for rank in (2, 3)] == [8.0, 8.0]
    assert [fleet.on(rank, _get, refs[0]) for rank in range(4)] == [1.5] * 4


@pytest.mark.parametrize("mode", ["whole", "ranges"])
def test_a_sum_goes_on_without_a_process_that_is_killed(fleet: Visited, mode: str) -> None:
    refs = [Ref.new() for _ in range(4)]
    value = dict(zip(refs, [1.0, 2.0, 4.0, 8.0], strict=True))
    sums = fleet.here.reduce(refs, 3, mode=mode, timeout=PATIENCE_S)
    for rank in (0, 1):
        fleet.on(rank, _put, refs[rank], value[refs[rank]], LARGE)
    fleet.on(2, _half, refs[2], value[refs[2]], LARGE)
    fleet.kill(2)
    fleet.on(3, _put, refs[3], value[refs[3]], LARGE)
    done = sums.result()
    for begin, end, included in done.included:
        assert set(done.array[begin:end].tolist()) == {sum(value[ref] for ref in included)}
    assert [end for _, end, _ in done.included][-1] == LARGE
    last = done.included[-1][2]
    assert refs[2] not in last  # the second half of it never was
    assert mode == "ranges" or (len(done.included) == 1 and len(last) == 3)
    assert done.mean()[-1] == pytest.approx(sum(value[ref] for ref in last) / len(last))


def test_who_waits_for_what_only_the_dead_had_is_told(fleet: Visited) -> None:
    ref = Ref.new()
    fleet.on(1, _half, ref, 1.0, LARGE)
    pid = fleet.processes[1].pid
    fleet.kill(1)
    with pytest.raises(DeadlineExceeded, match=f"{ref}.*Lost since the start: process {pid}"):
        fleet.here.get(ref, timeout=0.3).result()
    fleet.on(2, _put, ref2 := Ref.new(), 3.0, LARGE)
    assert fleet.on(0, _get, ref2) == 3.0  # the others go on


@pytest.fixture
def pair() -> Iterator[tuple[Objects, Objects]]:
    """Two processes in one, behind links of which blocks of some 20 KB are made."""
    with Objects(capacity=1 << 20, rate=1e7) as one, Objects(capacity=1 << 20, rate=1e7) as other:
        other.meet([one.descriptor])
        yield one, other


def test_blocks_come_while_an_object_is_written(pair: tuple[Objects, Objects]) -> None:
    writer = pair[0].create((2, 100_000), np.int32)
    writer.array[0] = 1
    writer.advance(100_000)
    blocks = pair[1].blocks(writer.ref, timeout=PATIENCE_S)
    begin, first = next(blocks)
    assert begin == 0 and 0 < len(first) <= 100_000 and set(first.tolist()) == {1}
    writer.array[1] = 2
    writer.seal()
    rest = list(blocks)
    assert next(begin for begin, _ in rest) == len(first)
    np.testing.assert_array_equal(np.concatenate([first, *(b for _, b in rest)]), writer.array.reshape(-1))


def test_an_id_that_nobody_makes_is_named(pair: tuple[Objects, Objects]) -> None:
    ref = Ref.new()
    with pytest.raises(DeadlineExceeded, match=f"nobody has made {ref}"):
        pair[0].get(ref, timeout=0.01).result()
    there = pair[1].put(np.zeros(100_000, np.uint8))
    with pytest.raises(DeadlineExceeded, match=f"the first 2 of 2 objects.*{ref}"):
        pair[0].reduce([there, ref], timeout=0.1).result()


@pytest.mark.parametrize("rule", ["measured", "hybrid", "degree"])
def test_a_sum_is_right_by_every_rule(pair: tuple[Objects, Objects], rule: str) -> None:
    refs = [one.put(np.full(20_000, 2.0**place)) for place, one in enumerate(pair * 3)]
    done = pair[0].reduce(refs, rule=rule).result(PATIENCE_S)
    assert set(done.array.tolist()) == {63.0} and done.refs == set(refs)


def test_what_is_deleted_while_it_is_read_is_named_and_arrays_stay(pair: tuple[Objects, Objects]) -> None:
    writer = pair[0].create((100_000,), np.uint8)
    writer.array[:] = 7
    writer.advance(60_000)
    read = pair[1].get(writer.ref)
    done = pair[1].get(pair[0].put(np.arange(5.0)))
    pair[1].delete(writer.ref)
    with pytest.raises(UsageError, match=f"{writer.ref} was deleted"):
        read.result(PATIENCE_S)
    np.testing.assert_array_equal(done.result(PATIENCE_S), np.arange(5.0))
    assert writer.array[99_999] == 7


def test_what_its_writer_gives_up_is_nobodys(pair: tuple[Objects, Objects]) -> None:
    writer = pair[0].create((100_000,), np.uint8)
    ref = writer.ref
    read = pair[1].get(ref)
    writer.advance(60_000)
    del writer
    with pytest.raises(UsageError, match=f"{ref} was deleted, or who wrote it gave up"):
        read.result(PATIENCE_S)
    assert pair[0].used == 0


def test_a_call_that_is_interrupted_ends_no_others(pair: tuple[Objects, Objects]) -> None:
    ref = pair[0].put(np.arange(3))

    def interrupted() -> int:
        pair[1]._core.get(ref.id)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pair[1]._calls.begin(Future(), interrupted)
    assert pair[1].get(ref).result(PATIENCE_S).tolist() == [0, 1, 2]


def test_a_list_whose_shapes_were_interrupted_is_put_again(
    pair: tuple[Objects, Objects], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = [np.arange(4.0)[::2], np.arange(3.0).astype(">f8")]

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pair[0], "put", interrupted)
        pair[0]._put_list(arrays, Ref.new(), PATIENCE_S)
    got = pair[1].get(pair[0].put(arrays)).result(PATIENCE_S)
    assert [array.tolist() for array in got] == [[0.0, 2.0], [0.0, 1.0, 2.0]]


@pytest.mark.parametrize("numel", [4, 100_000])
def test_objects_that_are_not_alike_are_named(pair: tuple[Objects, Objects], numel: int) -> None:
    one, other = pair[0].put(np.zeros(numel, np.int16)), pair[1].put(np.zeros((2, numel // 2), np.int16))
    with pytest.raises(ShapeMismatch, match=rf"{one}.*{other}|{other}.*{one}"):
        pair[0].reduce([one, other]).result(PATIENCE_S)
    floats = [pair[0].put(np.zeros(numel, np.float16)) for _ in range(2)]
    with pytest.raises(UsageError, match="bitwise reductions need integers"):
        pair[1].reduce(floats, op="bxor").result(PATIENCE_S)


def test_wrong_calls_are_refused_at_once(pair: tuple[Objects, Objects]) -> None:
    ref = pair[0].put([1, 2])
    with pytest.raises(UsageError, match="count must be from 1 to the number of refs, 1, not 2"):
        pair[0].reduce([ref], 2)
    with pytest.raises(UsageError, match="op must be one of sum"):
        pair[0].reduce([ref], op="mean")
    with pytest.raises(UsageError, match="no mode \"half\"; use 'whole' or 'ranges'"):
        pair[0].reduce([ref], mode="half")
    with pytest.raises(UsageError, match="no rule \"star\"; use 'measured', 'hybrid' or 'degree'"):
        pair[0].reduce([ref], rule="star")
    with pytest.raises(UsageError, match="named twice"):
        pair[0].reduce([ref, ref])
    with pytest.raises(UsageError, match="no elements of dtype complex128"):
        pair[0].put(np.zeros(2, complex))
    with pytest.raises(UsageError, match=f"{ref} is here already"):
        pair[0].put([3], ref)
    with pytest.raises(UsageError, match="count must be"):
        wait([pair[0].get(ref)], 2)


def test_bfloat16_is_refused_with_what_to_do(pair: tuple[Objects, Objects]) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.linspace(0, 1, 100, dtype=torch.bfloat16)
    for value in (tensor, [tensor, tensor]):
        with pytest.raises(UsageError, match=r"bfloat16.*put tensor.float\(\).*tensor.view\(torch.uint16\)"):
            pair[0].put(value)
    for kept in (tensor.view(torch.uint16), [tensor.view(torch.uint16)]):
        got = pair[1].get(pair[0].put(kept)).result(PATIENCE_S)
        array = got[0] if isinstance(got, list) else got
        assert torch.equal(torch.tensor(array).view(torch.bfloat16), tensor)
    np.testing.assert_array_equal(pair[1].get(pair[0].put(torch.arange(3))).result(PATIENCE_S), [0, 1, 2])


def test_a_full_store_says_what_fills_it(pair: tuple[Objects, Objects]) -> None:
    ref = pair[0].put(np.zeros(900_000, np.uint8))
    with pytest.raises(UsageError, match=f"no room for 200000 bytes.*{ref} with 900000"):
        pair[0].put(np.zeros(200_000, np.uint8), timeout=0.01)
    pair[0].delete(ref)
    pair[0].put(np.zeros(200_000, np.uint8), timeout=PATIENCE_S)  # waits until it is gone


def test_a_wrong_secret_is_refused(pair: tuple[Objects, Objects]) -> None:
    with (
        Objects(secret="a secret of somebody else") as stranger,
        pytest.raises(UsageError, match="wrong secret"),
    ):
        stranger.meet([pair[0].descriptor])


def test_futures_are_awaited_and_waited_for(pair: tuple[Objects, Objects]) -> None:
    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    refs = [Ref.new() for _ in range(3)]
    futures = [pair[1].get(ref) for ref in refs]
    assert wait(futures, 1, timeout=0.0) == ([], futures)
    for ref in refs[:2]:
        pair[0].put(array, ref)
    done, pending = wait(futures, 2)
    assert (done, pending) == (futures[:2], futures[2:])

    async def sums() -> Any:
        return await pair[0].reduce(refs, 2, "max")

    np.testing.assert_array_equal(asyncio.run(sums()).array, array)
    pair[1].close()
    with pytest.raises(TweedError, match="closed"):
        pending[0].result(PATIENCE_S)


def test_lists_of_arrays_are_one_object(pair: tuple[Objects, Objects]) -> None:
    arrays = [np.arange(6.0).reshape(2, 3), np.full((), 7.0), np.zeros((0, 4)), np.ones(20_000)]
    refs = [pair[0].put(arrays), pair[1].put(tuple(2 * array for array in arrays))]
    for got in (pair[1].get(refs[0]).result(PATIENCE_S), pair[0].get(refs[0]).result(PATIENCE_S)):
        assert isinstance(got, list) and not got[0].flags.writeable
        for array, given in zip(got, arrays, strict=True):
            np.testing.assert_array_equal(array, given)
    with Objects() as third:  # has put no such list, and learns the shapes
        third.meet([one.descriptor for one in pair])
        done = third.reduce(refs).result(PATIENCE_S)
        for total, mean, given in zip(done.array, done.mean(), arrays, strict=True):
            np.testing.assert_array_equal(total, 3 * given)
            np.testing.assert_array_equal(mean, 1.5 * given)
            assert mean.shape == given.shape
        assert len(pair[0].get(done.ref).result(PATIENCE_S)) == len(arrays)
        blocks = [block for _, block in third.blocks(refs[1])]
        np.testing.assert_array_equal(np.concatenate(blocks)[:7], [0, 2, 4, 6, 8, 10, 14])


def test_means_of_lists_are_those_of_their_ranges() -> None:
    one, other, third = (Ref(number) for number in range(3))
    included = [(0, 3, frozenset({one, other})), (3, 5, frozenset({one, other, third}))]
    done = Reduced(Ref(4), [np.full(2, 6.0), np.full((3, 1), 6.0)], included)
    assert [mean.tolist() for mean in done.mean()] == [[3.0, 3.0], [[3.0], [2.0], [2.0]]]


def test_lists_that_are_not_alike_are_named(pair: tuple[Objects, Objects]) -> None:
    with pytest.raises(UsageError, match="one dtype, not float32 and int64: put a list for each"):
        pair[0].put([np.zeros(2, np.float32), np.zeros(2, np.int64)])
    one, other = (pair[0].put([np.zeros(shape), np.ones(6)]) for shape in ((2, 3), (3, 2)))
    with pytest.raises(ShapeMismatch, match="a list of float64 arrays, 12 elements in all"):
        pair[1].reduce([one, other]).result(PATIENCE_S)
    with pytest.raises(ShapeMismatch, match=r"float64\[12\]"):
        pair[1].reduce([one, pair[0].put(np.zeros(12))]).result(PATIENCE_S)


def test_a_sum_of_which_a_source_is_deleted_is_named(pair: tuple[Objects, Objects]) -> None:
    refs = [pair[0].put(np.ones(100_000)), Ref.new()]
    sums = pair[1].reduce(refs)
    pair[0].delete(refs[1])
    with pytest.raises(UsageError, match=f"{refs[1]} was deleted"):
        sums.result(PATIENCE_S)


def test_the_sources_of_a_sum_are_known_before_it_is_complete(fleet: Visited) -> None:
    refs = [Ref.new() for _ in range(4)]
    sums = fleet.here.reduce(refs, count=2, timeout=PATIENCE_S)
    fleet.on(0, _put, refs[0], 1.0, LARGE)
    fleet.on(2, _half, refs[2], 4.0, LARGE)
    assert not sums.done() and set(sums.placed()) == {refs[0], refs[2]}
    fleet.here.delete(refs[0])
    assert sums.exception() is not None and sums.placed() == []
