"""A member's side of a hub: one task at a time, and what was not answered is sent again.

    state       it waits for        on its way out
    IDLE        a Task              Ready
    FETCHING    the model of it     Fetch, once: then the hub is asked for a task that comes with a model
    COMPUTING   its own computer    nothing
    OFFERING    Grant or Outcome    Offer
    SENDING     Outcome             Payload; over a new link Offer
    ENDED       nothing             nothing

Whoever drives it tells when a link is there; what the state has on its way out is then sent (again), but for
a payload: the hub may be another process by now, which has granted nothing, so it is offered anew. Answers
that are of another task, or of a message that was sent twice, change nothing. A link that breaks between any
two messages so costs one repetition, and nothing counts twice: the hub goes by numbers.

A grant may name a member as the way. Another grant may replace it: what was sent before is then sent again.
If that member cannot be reached the hub is told, and names another way. After a break the worker asks anew
which way is to be taken, as that member may be gone.

A drop throws the contribution away: the worker is idle again, and its next task is on the newest version.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from tweed.hub.wire.messages import (
    Blocked,
    EagerOffer,
    End,
    FromHub,
    FromWay,
    FromWorker,
    Grant,
    Handed,
    ModelRequest,
    Offer,
    Outcome,
    OutcomeReason,
    Payload,
    Ready,
    Resume,
    Task,
)


class State(Enum):
    """What a worker is about."""

    IDLE = "idle"
    FETCHING = "fetching"
    COMPUTING = "computing"
    OFFERING = "offering"
    SENDING = "sending"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute on the model that came with the task, and hand over what comes of it with `computed`.

    Attributes:
      counted: what came of the task before has arrived, and is in an update, unless that came to nothing.
    """

    task: Task
    counted: bool = False


@dataclass(frozen=True, slots=True)
class _Held:
    """What came of a task."""

    task: Task
    offer: Offer
    value: Any
    via: int | None = None  # who had added it up when it counted, and has a copy of the sum


@dataclass(slots=True)
class Worker:
    """One member.

    Attributes:
      state: see above.
      task: the one it is about.
      last: number of the last task that is over.
      counted: it counted.
      outcomes: how many ended in which way.
      via: to whom it sends; None: to the hub.
      keeps: what was counted is kept until the standby has applied it.
    """

    state: State = State.IDLE
    task: Task | None = None
    last: int = 0
    counted: bool = False
    outcomes: dict[str, int] = field(default_factory=dict)
    via: int | None = None
    keeps: bool = False
    _offer: Offer | None = None
    _value: Any = None
    _foreign: bool = False  # the task is of a hub that is gone
    _copy_first: bool = False
    _kept: dict[int, _Held] = field(default_factory=dict)
    _again: deque[_Held] = field(default_factory=deque)
    _safe: int = 0  # all up to this number that counted is in the standby's model
    _out: deque[FromWorker | Compute] = field(default_factory=deque)

    def linked(self) -> None:
        """A link to the hub is there, a first or a new one, over which no payload is allowed yet."""
        if self.task is not None:
            self.task = replace(self.task, eager_bytes=0)
        if self.state is State.FETCHING:
            self.lost()
        elif self.state is State.IDLE:
            self._out.append(Ready(self.last))
        elif self.state in (State.OFFERING, State.SENDING):
            self.state = State.OFFERING
            self._out.append(self._description())

    def computed(self, offer: Offer, value: Any) -> None:
        """What came of a task; if that is over meanwhile, it is thrown away."""
        if self.state is State.COMPUTING and self.task is not None and offer.number == self.task.number:
            self.state, self._offer, self._value = State.OFFERING, offer, value
            self.via, self._copy_first = None, False
            if self._foreign:
                self._again.append(_Held(self.task, offer, value))
                self._resume()
            else:
                self._out.append(offer)

    def renewed(self) -> None:
        """A link is there to another hub, the standby of that which is gone: all that it may lack is sent
        again, the oldest first."""
        self._out.clear()
        if self.state is State.FETCHING:
            self.state, self.task = State.IDLE, None
        waiting = self._kept | {one.task.number: one for one in self._again}
        if self.state in (State.OFFERING, State.SENDING):
            assert self.task is not None and self._offer is not None  # the state says so
            waiting[self.task.number] = _Held(self.task, self._offer, self._value)
            self.state = State.IDLE
        self._again = deque(one for _, one in sorted(waiting.items()))
        if self.state is State.COMPUTING:
            self._foreign = True  # what is kept is sent when it is done
        else:
            self._resume()

    def kept(self, number: int) -> None:
        """All up to this number that counted is in the standby's model."""
        self._safe = max(self._safe, number)
        self._kept = {one: held for one, held in self._kept.items() if one > self._safe}

    @property
    def keeping(self) -> int:
        """How many contributions it keeps for the standby."""
        return len(self._kept)

    def unsafe(self) -> list[tuple[Task, Offer, Any]]:
        """What counted by itself, and the standby may lack, the oldest first; and what the standby is to have
        first. What counted in a sum the standby hears from who has added it up."""
        kept = [one for _, one in sorted(self._kept.items()) if one.via is None]
        found = [(one.task, one.offer, one.value) for one in kept]
        if (
            self._copy_first
            and self.state is State.SENDING
            and self.task is not None
            and self._offer is not None
        ):
            found.append((self.task, self._offer, self._value))
        return found

    def forget(self, count: int | None = None) -> None:
        """So many of what is kept, the oldest first; None: all."""
        some = sorted(self._kept)
        for number in some if count is None else some[:count]:
            del self._kept[number]

    def _resume(self) -> None:
        """The next of what is sent again; if there is none, the worker asks for a task."""
        if self._again:
            held = self._again.popleft()
            self.state, self._foreign, self.via = State.OFFERING, True, None
            self.task, self._offer, self._value = held.task, held.offer, held.value
            self._out.append(self._description())
        else:
            self.state, self._foreign = State.IDLE, False
            self._out.append(Ready(self.last))

    def _description(self) -> Offer | Resume:
        assert self._offer is not None and self.task is not None  # the state says so
        return Resume(self._offer, self.task.version) if self._foreign else self._offer

    def handle(self, message: FromHub | FromWay) -> None:
        """A message has come, of the hub or of a member that it has named."""
        if isinstance(message, End):
            self.state, self.task, self._offer, self._value = State.ENDED, None, None, None
            self._out.clear()
        elif isinstance(message, Task):
            if self._may_begin(message):
                self.state, self.task = State.FETCHING, message
                if message.via is None:
                    self.fetched()
                else:
                    self._out.append(ModelRequest(message.version, message.via))
        elif isinstance(message, Outcome):
            if self._is_of_task(message.number):
                self._over(message)
        elif isinstance(message, Grant) and self._is_of_task(message.number) and self._has_way(message):
            self.state, self.via, self._copy_first = State.SENDING, message.via, message.copy_first
            self._send()
        elif isinstance(message, Handed) and self.task is not None and message.version == self.task.version:
            self.fetched() if message.there else self.lost()
        elif isinstance(message, Blocked) and self._is_of_task(message.number) and self.via is not None:
            self._out.extend([message] if self.state is State.SENDING else [])

    def poll(self) -> FromWorker | Compute | None:
        """What is to be done next; None: nothing."""
        return self._out.popleft() if self._out else None

    def as_sent(self, message: FromWorker) -> FromWorker | EagerOffer:
        """The message as it leaves: an offer with its payload, where the task allows so many bytes."""
        allowed = 0 if self.task is None else self.task.eager_bytes
        if isinstance(message, Offer) and 0 < message.numbytes <= allowed:
            return EagerOffer(message, self._value)
        return message

    def fetched(self) -> None:
        """The model of the task is there."""
        if self.state is State.FETCHING and self.task is not None:
            self.state = State.COMPUTING
            self._out.append(Compute(self.task, self.counted))

    def lost(self) -> None:
        """Whoever was asked for the model has none, or is gone: the hub has."""
        if self.state is State.FETCHING:
            self.state, self.task = State.IDLE, None
            self._out.append(Ready(self.last))

    def _may_begin(self, task: Task) -> bool:
        if self.state is State.FETCHING and self.task is not None:  # the hub sends the model itself
            return task.number > self.task.number or (task.number == self.task.number and task.via is None)
        return self.state is State.IDLE and task.number > self.last

    def _is_of_task(self, number: int) -> bool:
        return self.task is not None and number == self.task.number

    def _has_way(self, grant: Grant) -> bool:
        """Whether it is for something that has not been sent this way."""
        return self.state is State.OFFERING or (self.state is State.SENDING and grant.via != self.via)

    def _send(self) -> None:
        assert self.task is not None  # something was granted
        self._out.append(Payload(self.task.number, self._value, self.via, self._copy_first))

    def _over(self, outcome: Outcome) -> None:
        self.outcomes[outcome.why.name] = self.outcomes.get(outcome.why.name, 0) + 1
        counted, foreign = outcome.why is OutcomeReason.COUNTED, self._foreign
        if foreign and outcome.why in (OutcomeReason.EXPIRED, OutcomeReason.UNKNOWN):
            self._out.append(self._description())  # it may have counted before, and is not given up
            self.state = State.OFFERING
            return
        if self.keeps and counted and outcome.number > self._safe and self._offer is not None:
            assert self.task is not None  # it was offered
            self._kept[outcome.number] = _Held(self.task, self._offer, self._value, self.via)
        if outcome.number >= self.last:  # of what was sent again an older one may be over now
            self.last, self.counted = outcome.number, counted
        self.state = State.IDLE
        self.task = self._offer = self._value = None
        self._foreign = False
        if foreign:
            self._kept.pop(outcome.number, None) if not counted else None
            self._resume()
        elif not outcome.goes_on:
            self._out.append(Ready(self.last))
