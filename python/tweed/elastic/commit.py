"""A step counts for all members or for none.

A member that dies within an exchange leaves some survivors with the step's result and others without. So each
keeps its contribution until it has the result of the step, and that result until it knows that all have it:
two copies at most besides the gradient itself.

    a member   moved by                                          to
    IDLE       `contribute`: its share of the step is computed   PENDING: the contribution is kept
    PENDING    `contribute`: samples of lost members             the same, with their sum added
               `count`: the step's result is there, by the       IDLE: the result is kept in place of
               exchange or from another survivor                 the contribution, the step counts

When a result of step s is there all have contributed to it, so all had that of step s - 1: it can go. Hence
survivors are one step apart at most. `compare` says what follows from their positions:

    some have the result of the last step, some not             those take it (`Take`)
    all have counted the same steps                             what is pending is summed anew (`SumAnew`),
                                                                with what survivors computed for the lost

No survivor computes its share again, and none loads a model. The sum anew is taken over kept contributions by
the collective of the next group, so that it is the same bits at all.

What cannot happen: a step counts twice at a member, or with the contribution of a lost member at some and
without it at others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from tweed.errors import UsageError


@dataclass(frozen=True, slots=True)
class Position:
    """What a survivor has.

    Attributes:
      counted: steps that count here; the result of the last of them is kept.
      pending: whether a contribution to the next is kept.
    """

    counted: int
    pending: bool


@dataclass(frozen=True, slots=True)
class Take:
    """Members that lack the last step take its result.

    Attributes:
      step: its number.
      giver: who has it: the lowest rank.
      takers: who lacks it, by rank.
    """

    step: int
    giver: int
    takers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SumAnew:
    """The step counts nowhere: contributions are summed when the samples of lost members are in them.

    Attributes:
      step: its number.
      pending: who keeps a contribution, by rank; the others have yet to compute theirs.
    """

    step: int
    pending: tuple[int, ...]


def compare(positions: Mapping[int, Position]) -> Take | SumAnew:
    """What survivors do next, by rank what they have. The same at all, as all know the same positions.

    Raises: UsageError if they are more than a step apart, which no loss brings about: one of them is of
      another run.

    Example:
      >>> compare({0: Position(7, True), 1: Position(8, False)})
      Take(step=7, giver=1, takers=(0,))
    """
    counted = {position.counted for position in positions.values()}
    most, least = max(counted), min(counted)
    if most - least > 1:
        raise UsageError(
            f"members have counted {least} to {most} steps, and a loss leaves them one apart at most: "
            "is one of them of another run?"
        )
    if most > least:
        takers = tuple(sorted(rank for rank, position in positions.items() if position.counted == least))
        giver = min(rank for rank, position in positions.items() if position.counted == most)
        return Take(least, giver, takers)
    return SumAnew(most, tuple(sorted(rank for rank, position in positions.items() if position.pending)))


@dataclass(slots=True)
class Commit:
    """One member's side, see above.

    Attributes:
      steps_done: steps that count here.
      contribution: kept for the next step, `[numel]`; None: there is none.
      samples: that are in it.
      result: of the last step that counts, the mean over its samples, `[numel]`; None: none counts yet.
    """

    steps_done: int = 0
    contribution: Tensor | None = None
    samples: int = 0
    result: Tensor | None = None

    @property
    def position(self) -> Position:
        """What it would tell other survivors."""
        return Position(self.steps_done, self.contribution is not None)

    def contribute(self, step: int, total: Tensor, samples: int) -> None:
        """Keeps the sum of the gradients of `samples` samples, `[numel]`, as it is: nobody else may change it
        from now on. If there is one already, it is added to that.

        Raises: UsageError for another step than the next.
        """
        self._must_be_next(step)
        if self.contribution is None:
            self.contribution = total
        else:
            self.contribution += total
        self.samples += samples

    def count(self, step: int, result: Tensor) -> None:
        """The step counts: `result`, its mean, `[numel]`, takes the place of the contribution.

        Raises: UsageError for another step than the next.
        """
        self._must_be_next(step)
        self.result, self.contribution, self.samples = result, None, 0
        self.steps_done += 1

    def _must_be_next(self, step: int) -> None:
        if step != self.steps_done:
            raise UsageError(f"step {step} cannot count here: {self.steps_done} is the next")
