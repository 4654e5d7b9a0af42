"""All that a hub's machine is given: the same again in the same order, and it does the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tweed.hub.machine.hub import Hub
from tweed.hub.wire.messages import FromWorker


@dataclass(frozen=True, slots=True)
class Joined:
    """The link of a member stands; draws take it as that worker."""

    member: int
    worker: int
    now: float


@dataclass(frozen=True, slots=True)
class Able:
    """A member adds up what others send, if it is asked, as long as its link stands."""

    member: int
    now: float


@dataclass(frozen=True, slots=True)
class Left:
    """A link has ended, and may come back."""

    member: int
    now: float


@dataclass(frozen=True, slots=True)
class Came:
    """A message of a member."""

    member: int
    message: FromWorker
    now: float


@dataclass(frozen=True, slots=True)
class Passed:
    """Nothing has happened for a while."""

    now: float


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of the question that the rule has asked: tensors, or a list of them."""

    answer: Any
    now: float


Event = Joined | Able | Left | Came | Passed | Answered


def give(hub: Hub, event: Event) -> None:
    """Hands `event` to the machine. All that it wants then is done before the next one: what a contribution
    stands for may depend on the newest model."""
    if isinstance(event, Came):
        hub.handle(event.member, event.message, event.now)
    elif isinstance(event, Passed):
        hub.passed(event.now)
    elif isinstance(event, Joined):
        hub.expect(event.member, event.now)
    elif isinstance(event, Able):
        hub.may_aggregate(event.member, event.now)
    elif isinstance(event, Left):
        hub.left(event.member, event.now)
    else:
        hub.answered(event.answer, event.now)
