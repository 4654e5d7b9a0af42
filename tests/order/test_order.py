"""One table for the stage: every order joins by adding a row."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.errors import UsageError
from tweed.order import (
    BoundedDelay,
    Burst,
    ByLayer,
    Committed,
    Credit,
    Drop,
    Ended,
    FirstIn,
    NewestFirst,
    Offered,
    Order,
    Prophet,
    Reserved,
    Send,
    ShortestFirst,
    Transfer,
    Withdrawn,
)

Part = Order[Any]
TABLE: list[Part] = [
    FirstIn(), FirstIn(3), NewestFirst(), ShortestFirst(2), BoundedDelay(0), BoundedDelay(4, at_once=2),
    ByLayer(), ByLayer(3), Credit(10), Credit(1), Prophet((Burst(0, math.inf),), window_bytes=10),
]  # fmt: skip
every_order = pytest.mark.parametrize("order", TABLE, ids=repr)
#: Offered one after the other: bytes, and how many versions old.
batches = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 6)), max_size=12)


class Walk:
    """An order with a version, and a check of what it must never do."""

    def __init__(self, order: Part, version: int = 10) -> None:
        self.order, self.state, self.version = order, order.start(), version
        self.handle(Committed(version))
        self.waiting: dict[Any, Transfer] = {}
        self.under_way: dict[Any, Transfer] = {}

    def handle(self, event: Any) -> None:
        self.state = self.order.handle(event, self.state, 0.0)

    def offer(self, key: Any, numbytes: int, base: int) -> None:
        self.waiting[key] = Transfer(key, numbytes, base)
        self.handle(Offered(self.waiting[key]))

    def decisions(self) -> list[Send | Drop]:
        found: list[Send | Drop] = []
        while True:
            decision, self.state = self.order.poll(self.state, 0.0)
            if decision is None:
                return found
            transfer = self.waiting.pop(decision.key)
            if isinstance(decision, Send):
                self.under_way[decision.key] = transfer
            found.append(decision)

    def commit(self, key: Any) -> int:
        """Ends a transfer, and returns its delay."""
        delay = self.version - self.under_way.pop(key).base_version
        self.version += 1
        self.handle(Ended(key))
        self.handle(Committed(self.version))
        return delay


@every_order
@given(batch=batches, pick=st.randoms(use_true_random=False))
def test_all_that_is_offered_is_sent_or_dropped_a_few_at_once(order: Part, batch: Any, pick: Any) -> None:
    walk = Walk(order)
    for key, (numbytes, age) in enumerate(batch):
        walk.offer(key, numbytes, walk.version - age)
        if pick.random() < 0.5:
            walk.decisions()
            assert len(walk.under_way) <= getattr(order, "at_once", math.inf)
            sent_bytes = [transfer.numbytes for transfer in walk.under_way.values()]
            assert len(sent_bytes) <= 1 or sum(sent_bytes) <= getattr(order, "window_bytes", math.inf)
    for _ in range(2 * len(batch) + 1):
        walk.decisions()
        if walk.under_way:
            delay = walk.commit(pick.choice(sorted(walk.under_way)))
            assert not isinstance(order, BoundedDelay) or delay <= order.most
    assert not walk.waiting and not walk.under_way


@every_order
def test_what_was_withdrawn_is_never_sent(order: Part) -> None:
    walk = Walk(order)
    for key in range(8):
        walk.offer(key, 1, walk.version)
    walk.decisions()
    for key in list(walk.waiting):
        walk.handle(Withdrawn(key))
    for key in sorted(walk.under_way):
        walk.commit(key)
    assert walk.decisions() == []


def kept(state: Any) -> int:
    """How much a state holds."""
    values = (getattr(state, name) for name in state.__slots__)
    return sum(len(value) for value in values if hasattr(value, "__len__"))


@every_order
def test_nothing_is_kept_of_those_that_were_withdrawn(order: Part) -> None:
    walk = Walk(order)
    for key in range(5):  # so many that others must wait
        walk.offer(key, 1, walk.version)
    walk.decisions()
    for age in range(5000):
        walk.offer("hostile", 2 + age, walk.version - age)
        walk.handle(Withdrawn("hostile"))
    assert kept(walk.state) < 200


@pytest.mark.parametrize(
    ("order", "expected"),
    [(FirstIn(), "abcd"), (NewestFirst(), "bdac"), (ShortestFirst(), "cbda"), (BoundedDelay(9), "cbda")],
    ids=repr,
)
def test_who_goes_first(order: Part, expected: str) -> None:
    walk = Walk(order)
    for key, numbytes, base in (("a", 9, 7), ("b", 2, 9), ("c", 1, 5), ("d", 2, 9)):
        walk.offer(key, numbytes, base)
    sent = ""
    while walk.waiting:
        [decision] = walk.decisions()
        sent += decision.key
        walk.commit(decision.key)
    assert sent == expected


@pytest.mark.parametrize("order", [ShortestFirst(), BoundedDelay(9)], ids=repr)
def test_who_has_a_slow_link_takes_longer(order: Any) -> None:
    state = order.start()
    for key, numbytes, rate in (("slow", 10, 1.0), ("fast", 20, 4.0)):
        state = order.handle(Offered(Transfer(key, numbytes, 0, rate)), state, 0.0)
    assert order.poll(state, 0.0)[0] == Send("fast")


@given(
    batch=st.lists(
        st.tuples(st.integers(1, 99), st.integers(0, 5)), min_size=1, max_size=6, unique_by=lambda x: x[0]
    )
)
def test_as_few_as_can_be_are_dropped_and_the_others_end_soonest(batch: list[tuple[int, int]]) -> None:
    """Beside every order of every subset: none keeps more deadlines; of those that keep as many of the same,
    none has a smaller sum of completion times."""
    most = 5
    walk = Walk(BoundedDelay(most))
    for key, (numbytes, age) in enumerate(batch):
        walk.offer(key, numbytes, walk.version - age)
    sent: list[int] = []
    while walk.waiting:
        for decision in walk.decisions():
            if isinstance(decision, Send):
                sent.append(decision.key)
                walk.commit(decision.key)

    def in_time(keys: tuple[int, ...]) -> bool:
        return all(place <= most - batch[key][1] for place, key in enumerate(keys))

    def total(keys: tuple[int, ...]) -> int:
        return sum(batch[key][0] * (len(keys) - place) for place, key in enumerate(keys))

    assert in_time(tuple(sent))
    keys = range(len(batch))
    assert not any(in_time(some) for some in itertools.permutations(keys, len(sent) + 1))
    best = min(total(some) for some in itertools.permutations(sent) if in_time(some))
    assert total(tuple(sent)) <= 1.05 * best


def test_what_is_reserved_is_waited_for() -> None:
    walk = Walk(BoundedDelay(3))
    walk.handle(Reserved("slow", walk.version))
    for key in range(5):
        walk.offer(key, 1, walk.version)
    sent = []
    while decisions := walk.decisions():
        for decision in decisions:
            sent.append(decision)
            if isinstance(decision, Send):
                walk.commit(decision.key)
    assert sum(isinstance(one, Send) for one in sent) == 3  # then all wait, or are too late
    walk.offer("slow", 99, walk.version - 3)
    assert Send("slow") in walk.decisions()
    assert walk.commit("slow") == 3


def test_what_was_reserved_and_does_not_come_holds_nobody_up() -> None:
    walk = Walk(BoundedDelay(2))
    walk.handle(Reserved("gone", walk.version))
    for _ in range(2):
        walk.offer("other", 1, walk.version)
        assert walk.decisions() == [Send("other")]
        walk.commit("other")
    walk.offer("other", 1, walk.version)
    assert walk.decisions() == []
    walk.handle(Withdrawn("gone"))
    assert walk.decisions() == [Send("other")]


@pytest.mark.parametrize(
    "make",
    [lambda: FirstIn(0), lambda: BoundedDelay(-1), lambda: BoundedDelay(3, at_once=0), lambda: Credit(0)],
)
def test_what_cannot_be_is_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()
