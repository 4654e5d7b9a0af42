"""Sums of pieces begin in the order of the plan, whatever comes when. Sums are futures of the test's."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tweed.exchange.bucket import Bucket
from tweed.exchange.piece_sums import PieceSums
from tweed.order import Piece, Setting
from tweed.order.piece_list import PieceList

SIZES = [5, 1, 9, 4]  # values of each bucket, four to a piece


class Sum:
    """A work whose end the test decides."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values, self.future = values, torch.futures.Future[None]()
        self.error: Exception | None = None

    def get_future(self) -> Any:
        return self.future

    def end(self) -> None:
        self.values.add_(1)
        self.future.set_result(None)

    def fail(self) -> None:
        self.error = RuntimeError("a peer is lost")
        self.future.set_exception(self.error)

    def wait(self) -> bool:
        if self.error is not None:
            raise self.error
        return True


class Bench:
    """Sums that were begun, and the buckets that they are of."""

    def __init__(self, setting: Setting, seed: int = 0) -> None:
        self.buckets = [Bucket(torch.zeros(size), [torch.zeros(size)]) for size in SIZES]
        self.begun: list[Sum] = []
        pieces = list(PieceList.first(setting, [4 * size for size in SIZES]).pieces)
        random.Random(seed).shuffle(pieces)
        self.plan = PieceList(setting, tuple(pieces))
        self.sums = PieceSums(self.buckets, self.begin, lambda: 0.0)  # type: ignore[arg-type]
        self.sums.keep_to(self.plan)

    def begin(self, values: torch.Tensor) -> Sum:
        self.begun.append(Sum(values))
        return self.begun[-1]

    def order(self) -> list[Piece]:
        """The pieces whose sums have begun."""
        found = []
        for one in self.begun:
            of = [bucket.flat.untyped_storage().data_ptr() for bucket in self.buckets]
            layer = of.index(one.values.untyped_storage().data_ptr())
            found.append(Piece(layer, one.values.storage_offset() // 4))
        return found


@given(st.permutations(range(4)), st.integers(0, 99), st.integers(1, 80), st.randoms())
def test_sums_begin_in_the_order_of_the_plan(
    offers: list[int], seed: int, window_bytes: int, choose: random.Random
) -> None:
    bench = Bench(Setting(16, window_bytes), seed)
    waiting, under_way, given_ = list(offers), [], []
    while waiting or under_way:
        if waiting and (not under_way or choose.random() < 0.5):
            given_.append(bench.sums.offer(bench.buckets[waiting.pop()]))
        elif under_way:
            under_way.pop(choose.randrange(len(under_way))).end()
        under_way = [one for one in bench.begun if not one.future.done()]
        assert len(under_way) <= 1 or sum(one.values.nbytes for one in under_way) <= window_bytes
    assert bench.order() == list(bench.plan.pieces)
    assert all(one.wait() for one in given_) and all((one.flat == 1).all() for one in bench.buckets)


def test_threads_that_bring_events_together_lose_none() -> None:
    bench = Bench(Setting(16, 10**9))
    bench.begin = lambda values: ended(bench, values)  # type: ignore[method-assign]
    bench.sums._begin = bench.begin  # type: ignore[assignment]
    for _ in range(50):
        together = threading.Barrier(len(SIZES))

        def offer(bucket: Bucket, together: threading.Barrier = together) -> None:
            together.wait()
            bench.sums.offer(bucket).wait()

        threads = [threading.Thread(target=offer, args=(one,), daemon=True) for one in bench.buckets]
        for one in threads:
            one.start()
        for one in threads:
            one.join(20)
            assert not one.is_alive(), "an event was lost"
    assert all((one.flat == 50).all() for one in bench.buckets)


def ended(bench: Bench, values: torch.Tensor) -> Sum:
    """A sum that ends in a thread of its own, as in a backend."""
    one = Sum(values)
    threading.Thread(target=one.end, daemon=True).start()
    return one


def test_whoever_waits_hears_what_one_sum_has_raised() -> None:
    bench = Bench(Setting(16, 16))
    waits = [bench.sums.offer(bucket) for bucket in bench.buckets]
    bench.begun[0].fail()
    for one in waits:
        with pytest.raises(RuntimeError, match="a peer is lost"):
            one.wait()
    assert len(bench.begun) == 1  # nothing begins after it
    with pytest.raises(RuntimeError, match="a peer is lost"):
        bench.sums.offer(bench.buckets[0]).wait()


def test_a_sum_that_cannot_begin_is_heard_of() -> None:
    bench = Bench(Setting(16, 16))

    def refuses(values: torch.Tensor) -> Any:
        raise RuntimeError("the group is gone")

    bench.sums._begin = refuses
    waits = [bench.sums.offer(bucket) for bucket in bench.buckets]
    for one in waits:
        with pytest.raises(RuntimeError, match="the group is gone"):
            one.wait()


def test_how_long_something_was_under_way_is_measured() -> None:
    bench, now = Bench(Setting(16, 10**9)), [0.0]
    bench.sums._now = lambda: now[0]
    for bucket in bench.buckets:
        bench.sums.offer(bucket)
    for one in list(bench.begun):
        now[0] += 2.0
        one.end()
    assert bench.sums.busy_s == 2.0 * len(bench.plan.pieces) and bench.sums.bytes_summed == 4 * sum(SIZES)
