"""`BoundedDelay` beside what its page says, word by word; and what it keeps."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tweed.order import BoundedDelay, Committed, Drop, Ended, Offered, Reserved, Send, Transfer, Withdrawn
from tweed.order.backlog import Backlog

#: What happens, and to which of the keys that there are; bytes; how many versions old.
happenings = st.lists(
    st.tuples(st.sampled_from("ooooredw"), st.integers(0, 99), st.integers(1, 5), st.integers(0, 6)),
    max_size=60,
)


class Plain:
    """The rules of `BoundedDelay`, by going over all that waits."""

    def __init__(self, most: int, at_once: int) -> None:
        self.most, self.at_once, self.version = most, at_once, 0
        self.waiting: dict[Hashable, tuple[int, bool, Transfer | None]] = {}
        self.under_way: dict[Hashable, int] = {}

    def handle(self, event: Any) -> None:
        promised = [key for key, (_, free, _) in self.waiting.items() if not free]
        if isinstance(event, Offered):
            key, free = event.transfer.key, event.transfer.key not in promised
            self.waiting.pop(key, None)
            self.waiting[key] = event.transfer.base_version, free, event.transfer
        elif isinstance(event, Reserved) and len(promised) < self.most - self.at_once:
            self.waiting[event.key] = event.base_version, False, None
        elif isinstance(event, Ended):
            self.under_way.pop(event.key)
        elif isinstance(event, Committed):
            self.version = event.version
        elif isinstance(event, Withdrawn):
            self.waiting.pop(event.key, None)

    def poll(self) -> Send | Drop | None:
        first = self.version + len(self.under_way)
        ranked = sorted(self.waiting.values(), key=lambda one: (one[0], one[1], one[2] is not None))
        some = ranked
        for place, (base, _, _) in enumerate(ranked):
            slack = base + self.most - (first + place)
            if slack <= 0:
                some = ranked[: place + 1]
                free = [one for _, may_drop, one in some if may_drop and one is not None]
                if slack < 0 and free:
                    late = max(free, key=lambda one: one.numbytes)
                    del self.waiting[late.key]
                    return Drop(late.key)
                break
        there = [one for _, _, one in some if one is not None]
        oldest = min(self.under_way.values(), default=first)
        if not there or len(self.under_way) >= self.at_once or oldest + self.most < first:
            return None
        chosen = min(there, key=lambda one: one.numbytes)
        del self.waiting[chosen.key]
        self.under_way[chosen.key] = chosen.base_version
        return Send(chosen.key)


@given(happenings, st.integers(0, 9), st.integers(1, 3))
def test_it_decides_by_its_rules(happenings: Any, most: int, at_once: int) -> None:
    order, plain = BoundedDelay(most, at_once), Plain(most, at_once)
    state = order.start()
    for number, (what, pick, numbytes, age) in enumerate(happenings):
        base = plain.version - age
        reserved = [key for key, (_, _, transfer) in plain.waiting.items() if transfer is None]
        events: list[Any] = []
        if what == "o":
            key = reserved[pick % len(reserved)] if reserved and pick % 3 == 0 else number
            events = [Offered(Transfer(key, numbytes, base))]
        elif what == "r":
            events = [Reserved(number, base)]
        elif what == "e" and plain.under_way:
            key = list(plain.under_way)[pick % len(plain.under_way)]
            events = [Ended(key), Committed(plain.version + 1)]
        elif what == "d" and plain.under_way:
            events = [Ended(next(iter(plain.under_way)))]
        elif what == "w" and plain.waiting:
            events = [Withdrawn(list(plain.waiting)[pick % len(plain.waiting)])]
        for event in events:
            plain.handle(event)
            state = order.handle(event, state, 0.0)
        expected: Any = True
        while expected is not None and pick % 4:
            expected = plain.poll()
            found, state = order.poll(state, 0.0)
            assert found == expected


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(-20, 70)), max_size=50))
def test_a_backlog_is_full_from_the_first_version_that_has_too_many(changes: Any) -> None:
    backlog, versions = Backlog(), []
    for number, (goes, pick, most) in enumerate(changes):
        if goes and versions:
            backlog.add(versions.pop(pick % len(versions)), -1)
        else:
            versions.append(pick + number)
            backlog.add(versions[-1], 1)
        up_to = {one: sum(other <= one for other in versions) for one in sorted(versions)}
        full = [one for one, count in up_to.items() if one - count <= most]
        expected = (full[0], sum(other < full[0] for other in versions)) if full else None
        assert backlog.full(most) == expected
