"""The contract of the stage: what a cadence is given, what it decides, how its state is kept.

A cadence is pure. It holds settings only; the caller holds the state and passes `now`, in seconds of any
clock that never goes back. So the live driver (`tweed.attach`) and the simulated one run the same code.

    state = cadence.start()
    state = cadence.handle(Joined(rank, size), state, now)   # once: who this is
    state = cadence.handle(event, state, now)                # something happened
    decision, state = cadence.poll(state, now)               # talk now, or keep going alone?

Call `poll` once after each `handle` of an event that may change the decision, and once before each gradient
that could be exchanged. A decision to exchange is final: the state that comes with it takes the exchange as
done.

All ranks exchange together, or none: `Decision.exchange` is equal on all. Whether this rank contributes
then is its own affair: a *silent* one takes part and contributes nothing.

A cadence ignores events that mean nothing to it. One with `needs_norm` must be given the norm of what there
is to send (`Ready`) before each poll, and how far the model moved (`StepDone.norm`). The parts of an ordered
iteration (`IterationStarted`, `ContributionReceived`, `ServerStopped`) are for `ordered` and `server_policy`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from tweed.cadence.outer import Outer

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Joined:
    """Training begins, and this rank is `rank` of `size` that contribute."""

    rank: int
    size: int


@dataclass(frozen=True, slots=True)
class StepDone:
    """The optimizer took a step here. `norm`: norm of the update, None if nobody measured it."""

    norm: float | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """All that this rank has to send is there, and its norm is `norm`."""

    norm: float


@dataclass(frozen=True, slots=True)
class Stop:
    """The caller needs one model on all ranks now: training ends, or an evaluation begins."""


@dataclass(frozen=True, slots=True)
class IterationStarted:
    """An ordered iteration begins. See `tweed.cadence.timers.Timer` for its two numbers."""

    pace: float
    shift: float = 0.0


@dataclass(frozen=True, slots=True)
class ContributionReceived:
    """The server has received from one more rank.

    Args:
      norm: norm of what the rank sent; None: it ended the iteration in silence.
      total: norm of the sum of what all ranks have sent last, this one's included.
    """

    norm: float | None
    total: float


@dataclass(frozen=True, slots=True)
class ServerStopped:
    """The server has received enough: only what is longer than `level` must still be sent."""

    level: float


#: What a cadence is given.
Event = Joined | StepDone | Ready | Stop | IterationStarted | ContributionReceived | ServerStopped


class Action(Enum):
    """What a rank does now. The value is the text for people."""

    EXCHANGE = "exchange"
    EXCHANGE_SILENTLY = "exchange in silence"
    KEEP_GOING = "keep going"


class Decision(Enum):
    """Talk now or keep going alone, and why. `str` gives both as a text for people.

    Attributes:
      action: what this rank does.
      reason: why, in words.
      exchange: every rank exchanges now.
      silent: this rank takes part in the exchange and contributes nothing.
    """

    EVERY_STEP = Action.EXCHANGE, "this cadence exchanges every step"
    ROUND_FULL = Action.EXCHANGE, "the round of local steps is full"
    FRAGMENT = Action.EXCHANGE, "the turn of a fragment of the model has come"
    LAST_ROUND = Action.EXCHANGE, "the round is open, but one model is needed now"
    NEWS = Action.EXCHANGE, "what this rank has to send has changed enough"
    DRAWN = Action.EXCHANGE, "the lot fell on this rank"
    TIMER_EXPIRED = Action.EXCHANGE, "this rank's time has come"
    ABOVE_LEVEL = (
        Action.EXCHANGE,
        "the server has stopped, but this rank has more than it may withhold",
    )
    NO_NEWS = Action.EXCHANGE_SILENTLY, "what this rank has to send has changed too little"
    NOT_DRAWN = Action.EXCHANGE_SILENTLY, "the lot fell on others"
    NOTHING = Action.EXCHANGE_SILENTLY, "this rank has nothing to send"
    ENOUGH = Action.EXCHANGE_SILENTLY, "the server has heard enough"
    WAITING = Action.KEEP_GOING, "this rank's time has not come"
    UNMEASURED = Action.KEEP_GOING, "what there is to send has not been measured"
    ROUND_OPEN = Action.KEEP_GOING, "the round of local steps is not full"
    AGREED = Action.KEEP_GOING, "nothing is new since the last exchange"

    def __init__(self, action: Action, reason: str) -> None:
        self.action = action
        self.reason = reason
        self.exchange = action is not Action.KEEP_GOING
        self.silent = action is Action.EXCHANGE_SILENTLY

    def __str__(self) -> str:
        return f"{self.action.value}: {self.reason}"


@runtime_checkable
class Cadence(Protocol[State]):
    """When to talk. `State` is a frozen dataclass of plain numbers, so that it can be stored.

    A cadence inherits from this class and says what is otherwise with it: what goes with it follows from that
    (`tweed.composition`).
    """

    __slots__ = ()
    #: It decides by the length of what there is to send.
    needs_norm: ClassVar[bool] = False
    #: A server keeps what each rank sent last, which counts until the rank sends again.
    keeps_last: ClassVar[bool] = False
    #: Several ranks compute the same, and what comes first counts.
    redundant: ClassVar[bool] = False
    #: A parameter is stepped when it is next read, and no exchange is waited for before.
    deferred: ClassVar[bool] = False
    #: Of what is exchanged at once, if the caller says nothing else.
    bucket_bytes: ClassVar[int] = 25 * 2**20

    @property
    def exchanges(self) -> frozenset[str]:
        """What this cadence can exchange, of "gradient", "factors", "step", "difference" and "model"."""

    @property
    def reason(self) -> str:
        """Why it can exchange nothing else, for the error text."""

    @property
    def may_be_silent(self) -> bool:
        """Whether a rank may take part in an exchange and contribute nothing."""
        return False

    @property
    def round_steps(self) -> int | None:
        """Steps after which all ranks contribute; None: not all do, or not all count."""
        return None

    @property
    def coded(self) -> bool:
        """Whether what is sent are combinations of gradients, by a code whose weights may be large."""
        return False

    @property
    def outer(self) -> Outer[Any] | None:
        """What becomes of the mean movement of a round; None: the model moves by it."""
        return None

    @property
    def proximal(self) -> float:
        """How strongly local steps are pulled to where the round began."""
        return 0.0

    @property
    def delay(self) -> int:
        """Steps that ranks take while an exchange is under way."""
        return 0

    @property
    def fragments(self) -> int:
        """Parts of the model that are exchanged one after the other."""
        return 1

    @property
    def overlapped(self) -> bool:
        """Whether models go on while a part of them is exchanged."""
        return self.delay > 0 or self.fragments > 1

    def start(self) -> State:
        """The state before the first step."""
        ...

    def handle(self, event: Event, state: State, now: float) -> State:
        """The state after `event`, which happened at `now` (seconds)."""
        ...

    def poll(self, state: State, now: float) -> tuple[Decision, State]:
        """What to do at `now` (seconds), and the state after it was done."""
        ...
