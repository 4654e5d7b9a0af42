"""The contract of the stage: what arrives, what is believed, what comes out.

An aggregate is pure. It holds settings only; the caller holds the state and passes `now` in seconds.

    aggregate.require(contributors)                           # can it hold with so many?
    state = aggregate.start()
    state = aggregate.handle(arrival, state, now)             # one rank's contribution is here
    update, verdicts, state = aggregate.poll(state, now)      # what the contributions so far come to

A batch, all ranks of one step, is the simplest case: handle each, poll once. Values are numpy arrays or torch
tensors.

`poll` may ask its caller instead: the update is then a `Question`, and what comes of it is handled as an
`Answer`, before the next poll. `concluded` does both in turns.

Some aggregates need no single contribution, only their mean, and a collective can form its sum on the way.
Such an aggregate says `in_network = "mean"`. `tweed.exchange` then lets the collective do the work where it
can, with the same result as that of `poll` to rounding. `in_network = None`: each contribution must be seen
alone, by the owner of its range. One that `compares` contributions cannot judge one by itself.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeVar, runtime_checkable

from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

State = TypeVar("State")
Value = Any  # a numpy array or a torch tensor


@dataclass(frozen=True, slots=True)
class Arrival:
    """One rank's contribution.

    Args:
      value: `[numel]` or any shape equal on all ranks; zero where something is missing.
      sender: who sent it.
      base_version: the model's version that the contribution was computed on.
      norm: of `value`; None if nobody measured it.
      samples: that it was computed on.
      delay: how many updates were committed since `base_version`.
      senders: `value` is the sum of their contributions, formed on the way; empty: it is that of `sender`
        alone. Only what says `in_network` meets such sums.
      missing: same shape as `value`, 1 where the number was lost or not sent and 0 elsewhere; None: all is
        there.
      loss: at the model that the contribution was computed on; not a number if nobody knows it.
    """

    value: Value
    sender: int
    base_version: int = 0
    norm: float | None = None
    missing: Value | None = None
    samples: float = 1.0
    delay: int = 0
    loss: float = math.nan
    senders: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class InnerProducts:
    """Asks for the inner products of vectors, of which each owner has its range.

    Answer: `[k, k]` float64, of whole vectors; the same bits at every owner.

    Args:
      vectors: k of them, this owner's range: `[numel]` each, float32 or float64, on the host.
    """

    vectors: Sequence[Tensor]

    def of_range(self) -> Tensor:
        """The inner products of this owner's range: their sum over owners is the answer.

        Raises: UsageError for vectors of different lengths.

        Cost: each vector is read once; k^2 multiplications per number.
        """
        import torch

        from tweed import _core  # as torch: a strategy is a plain value

        count = len(self.vectors)
        double = any(vector.dtype == torch.float64 for vector in self.vectors)
        dtype = torch.float64 if double else torch.float32
        rows = [vector.to("cpu", dtype).contiguous() for vector in self.vectors]
        found = torch.zeros(count, count, dtype=torch.float64)
        if len({row.numel() for row in rows}) > 1:
            lengths = sorted({row.numel() for row in rows})
            raise UsageError(f"inner products take vectors of one length, not of {lengths} values")
        if rows:
            addresses = [row.data_ptr() for row in rows]
            _core.inner_products(addresses, rows[0].numel(), double, found.data_ptr())
        return found


@dataclass(frozen=True, slots=True)
class Losses:
    """Asks for the loss on samples that the caller trusts, the same ones at all points.

    Answer: `[1 + k]` float64: at the model, then at the model less `scale` times each direction.

    Args:
      directions: k of them, of whole gradients: `[numel]` each.
      scale: see above.
    """

    directions: Sequence[Tensor]
    scale: float


@dataclass(frozen=True, slots=True)
class TrustedGradient:
    """Asks for the gradient at the model on samples that the caller trusts. Answer: `[numel]`."""


@dataclass(frozen=True, slots=True)
class TrustedSteps:
    """Asks how far steps on samples that the caller trusts lead from the model, for validators that each have
    samples of their own. All begin at the model, and step by plain gradient descent.

    Answer: for each tensor of the model `[validators, numel of the tensor]`: where the validator began, less
    where it stands. That is the form in which differences count.

    Args:
      steps: that each takes.
      lr: of its steps.
      validators: how many there are.
    """

    steps: int
    lr: float
    validators: int = 1


#: What a rule may ask of its driver.
Question = InnerProducts | Losses | TrustedGradient | TrustedSteps


def of_range(question: Question) -> Tensor:
    """What an owner knows of the answer by itself.

    Raises: UsageError for what takes trusted samples, and so a caller that has some.
    """
    if not isinstance(question, InnerProducts):
        raise UsageError("the aggregate judges by trusted samples, which only a hub has: see Hub")
    return question.of_range()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a question."""

    value: Any


class Reason(Enum):
    """Why a contribution got its weight. The value is the text for people."""

    EQUAL = "every contribution counts alike"
    TRIMMED = "of each number, the largest and the smallest contributions are left out"
    MIDDLE = "of each number, the contribution in the middle counts"
    NEAR_MEDIAN = "of each number, the contributions nearest to the median count"
    NEAR_TRIMMED = "of each number, the contributions nearest to the trimmed mean count"
    LIKE_OTHERS = "it always is too much like those of others"
    NOT_FINITE = "some of its numbers are infinite, not a number, or too large to be squared"
    NEAREST = "its neighbours are nearer than those of others"
    NEAR_OTHERS = "it is near to enough others"
    BY_DISTANCE = "the farther a contribution is from the centre, the less it counts"
    UNLIKE_OTHERS = "the more a sender's contributions are like another's, the less they count"
    NEAR_SENDER = "it is near to that of the sender that is believed"
    BY_LOSS = "the larger its loss, the more it counts"
    NO_LOSS = "it came without a loss above 0, and counts by its loss"
    SAMPLES_AND_DELAY = "it counts by its samples, and less the later it comes"
    FAR = "it is farther from the others than those that count"
    SHAPE = "it has another shape than most contributions"
    DESCENDS = "on trusted samples the loss falls along it"
    ASCENDS = "on trusted samples the loss falls less along it than along others, or rises"
    LIKE_TRUSTED = "it points where the gradient of trusted samples does"
    UNLIKE_TRUSTED = "it does not point where the gradient of trusted samples does"
    LIKE_STEPS = "its layers count that go where steps on trusted samples go, and not much farther"
    CLIPPED_TO_STEPS = "its layers count, as long as steps on trusted samples; reversed if against them"
    UNLIKE_STEPS = "no layer of it goes where steps on trusted samples go, without going much farther"


@dataclass(frozen=True, slots=True)
class Verdict:
    """With which weight `sender` was counted (0: not believed), and why.

    Attributes:
      score: what the rule went by, if that is one value for each, see there: Zeno's descent, Zeno++'s and
        FLTrust's cosine, Krum's distances, ThreeSigma's distance. None: it is not.
    """

    sender: int
    weight: float
    reason: Reason
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Gathered:
    """A state: what has arrived for the next update.

    Attributes:
      arrivals: ordered by sender.
      answer: what came of the question that was asked about these; None: not asked yet.
    """

    arrivals: tuple[Arrival, ...] = ()
    answer: Any = None

    def plus(self, event: Arrival | Answer) -> Self:
        """With an arrival in its sender's place: a sender that arrives twice counts once, with its latest.
        What was answered before it is no longer true."""
        if isinstance(event, Answer):
            return replace(self, answer=event.value)
        arrivals = self.arrivals
        place = bisect_left(arrivals, event.sender, key=lambda one: one.sender)
        again = place < len(arrivals) and arrivals[place].sender == event.sender
        arrivals = (*arrivals[:place], event, *arrivals[place + again :])
        return replace(self, arrivals=arrivals, answer=None)


@runtime_checkable
class Aggregate(Protocol[State]):
    """What the sum is and whom to believe.

    An aggregate inherits from this class and says what is otherwise with it: what goes with it follows from
    that (`tweed.composition`).

    Attributes:
      in_network: "mean": a collective may form the sum on the way; None: each must be seen alone.
      exchanges: what may be exchanged with it, of "gradient", "factors", "step", "difference" and "model".
      exchanges_reason: why nothing else; for the error text.
      needs_trusted: it judges by samples that the hub trusts.
      needs_losses: it weighs by the losses that members report.
      one_by_one: a contribution that comes alone can be judged by trusted samples.
    """

    __slots__ = ()
    in_network: ClassVar[Literal["mean"] | None] = None
    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient", "factors", "step", "difference", "model"})
    exchanges_reason: ClassVar[str] = ""
    needs_trusted: ClassVar[bool] = False
    needs_losses: ClassVar[bool] = False
    one_by_one: ClassVar[bool] = True

    @property
    def compares(self) -> bool:
        """Whether it cannot judge a contribution by itself."""
        return False

    @property
    def judge(self) -> Aggregate[Any]:
        """What judges, behind all that comes before: itself, if nothing does."""
        return self

    @property
    def measured_steps(self) -> int | None:
        """How many local steps it measures contributions by; None: by none."""
        return None

    def require(self, contributors: int) -> None:
        """Raises UsageError if the aggregate cannot hold what it promises with so few."""
        ...

    def start(self) -> State:
        """The state before the first arrival."""
        ...

    def handle(self, event: Arrival | Answer, state: State, now: float) -> State:
        """The state after `event`, which came in at `now` (seconds)."""
        ...

    def poll(self, state: State, now: float) -> tuple[Value | Question | None, tuple[Verdict, ...], State]:
        """The update so far (None: nothing arrived), a verdict per sender, the state for the next one; or a
        question, no verdicts, and the state that handles the answer."""
        ...


Concluded = tuple[Value | None, tuple[Verdict, ...], Any]


def concluded(aggregate: Aggregate[Any], state: Any, now: float) -> Generator[Question, Any, Concluded]:
    """Polls until there is no more question; yields each, and takes its answer."""
    while True:
        found, verdicts, state = aggregate.poll(state, now)
        if not isinstance(found, Question):
            return found, verdicts, state
        state = aggregate.handle(Answer((yield found)), state, now)


def conclude(aggregate: Aggregate[Any], state: Any, now: float) -> Concluded:
    """As `concluded`, where one owner has all of the contributions."""
    polls = concluded(aggregate, state, now)
    try:
        question = next(polls)
        while True:
            question = polls.send(of_range(question))
    except StopIteration as end:
        found: Concluded = end.value
        return found
