"""Members that come and say nothing, ask on and on, or do not send what was granted: others train on."""

from __future__ import annotations

import numpy as np

from tweed.aggregate import All
from tweed.collective import Hub as HubOf
from tweed.hub.machine import Grant, Hub, Leave, Offer, Payload, Ready, Step, Task
from tweed.hub.machine.actions import Tell
from tweed.hub.machine.build import hub_of
from tweed.order import FirstIn
from tweed.strategy import Strategy

TASK_S = 10.0
PAYLOAD_S = 60.0


def drained(hub: Hub) -> list:
    found = []
    while (action := hub.poll()) is not None:
        found.append(action)
    return found


def told(actions: list, member: int, kind: type) -> list:
    return [
        a.message
        for a in actions
        if isinstance(a, Tell) and a.member == member and isinstance(a.message, kind)
    ]


def contribute(hub: Hub, member: int, now: float) -> list:
    """A member's whole round; it has a task."""
    number = hub.members[member].number
    hub.handle(member, Offer(number, 4), now)
    hub.handle(member, Payload(number, np.ones(1)), now)
    return drained(hub)


def test_who_is_linked_and_says_nothing_is_not_waited_for_for_ever() -> None:
    hub = Hub(when=All(), task_s=TASK_S)
    hub.expect(0)
    hub.expect(1)  # its link stands; it never says anything
    hub.handle(0, Ready(), 0.0)
    actions = drained(hub) + contribute(hub, 0, 1.0)
    for now in range(2, 1000):
        hub.passed(float(now))
    actions += drained(hub)
    assert [a for a in actions if isinstance(a, Step)], f"no update after {999 / TASK_S:.0f} leases"


def test_who_has_contributed_and_comes_back_silent_is_not_waited_for_for_ever() -> None:
    hub = Hub(when=All(), task_s=TASK_S)
    for member in (0, 1):
        hub.expect(member)
        hub.handle(member, Ready(), 0.0)
    actions = drained(hub) + contribute(hub, 0, 1.0) + contribute(hub, 1, 1.0)
    assert sum(isinstance(a, Step) for a in actions) == 1
    hub.handle(1, Leave(), 1.5)
    hub.expect(1)
    contribute(hub, 0, 2.0)
    for now in range(2, 1000):
        hub.passed(float(now))
    assert hub.version == 2


def test_a_member_that_asks_again_and_again_is_not_sent_the_model_each_time() -> None:
    hub = Hub()
    hub.expect(0)
    for _ in range(50):
        hub.handle(0, Ready(), 0.0)
    assert len(told(drained(hub), 0, Task)) < 5


def test_one_that_is_granted_and_silent_does_not_hold_up_all_others() -> None:
    """With `fewest=1` the order of a hub without a group lets one transfer go at a time."""
    strategy = Strategy(collective=HubOf(0))
    hub = hub_of(strategy, 1, lambda member, payload: payload.value)
    for member in (0, 1):
        hub.expect(member)
        hub.handle(member, Ready(), 0.0)
    hub.handle(0, Offer(1, 4), 1.0)  # is granted, and never sends
    drained(hub)
    hub.handle(1, Offer(1, 4), 1.0)
    hub.passed(30.0)
    assert told(drained(hub), 1, Grant)


def granted(others: int) -> Hub:
    """A hub that lets one transfer go at a time: it is granted to member 0, and the others have offered."""
    hub = Hub(order=FirstIn(1), payload_s=PAYLOAD_S)
    for member in range(1 + others):
        hub.expect(member)
        hub.handle(member, Ready(), 0.0)
        hub.handle(member, Offer(1, 4), 0.0)
    assert [a.member for a in drained(hub) if isinstance(a, Tell) and isinstance(a.message, Grant)] == [0]
    return hub


def test_whose_link_ends_gives_back_what_was_granted_at_once() -> None:
    hub = granted(1)
    hub.left(0, 1.0)
    assert told(drained(hub), 1, Grant) == [Grant(1)]


def test_whose_link_ends_while_it_waits_is_granted_nothing() -> None:
    hub = granted(2)
    hub.left(1, 1.0)
    hub.handle(0, Payload(1, np.ones(1)), 2.0)
    assert told(drained(hub), 2, Grant) == [Grant(1)]


def test_who_comes_back_offers_again_what_was_taken_back_and_it_counts_once() -> None:
    hub = granted(1)
    hub.left(0, 1.0)
    hub.handle(0, Offer(1, 4), 2.0)
    hub.handle(1, Payload(1, np.ones(1)), 3.0)
    assert told(drained(hub), 0, Grant) == [Grant(1)]
    hub.handle(0, Payload(1, np.ones(1)), 4.0)
    hub.handle(0, Payload(1, np.ones(1)), 4.0)
    drained(hub)
    assert hub.version == 2


def test_who_is_granted_something_and_hangs_up_again_and_again_is_not_waited_for() -> None:
    hub = Hub(when=All(), task_s=TASK_S)
    for member in (0, 1):
        hub.expect(member)
        hub.handle(member, Ready(), 0.0)
    contribute(hub, 0, 0.5)
    for now in range(1, 100):
        hub.handle(1, Offer(1, 4), float(now))
        hub.left(1, now + 0.5)
    assert hub.version >= 1
