"""What the iterations of a plain loop are to the steps of members that come and go.

    an iteration   moved by                                              to
    OVER           `begin`: there are samples, or a result of others'    DRAWN, with a batch for the loop
                   `begin`: all steps count, or this process is out      the loop ends
    DRAWN          `computed`: the step counts                           COUNTED: gradients are the mean
                   `computed`: samples are missing yet, which may be     VOID: the model stays as it is
                   those of a lost member
    COUNTED        `stepped`: the optimizer has stepped                  OVER
                   `begin`: a gradient scaler has skipped the step       OVER
    VOID           `begin`: what is kept becomes as it was               OVER

Each step that counts is one iteration that counts, at all members, also where there was nothing to compute:
who takes the result of others, as a joiner does, and who has no samples, is given a batch whose gradient is
thrown away. So the whole body of the loop runs once per step, with clipping and schedules, whoever computes.

What cannot happen: the optimizer steps by another gradient than the others'; a sample is in two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from enum import Enum, auto
from itertools import chain, islice, pairwise
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from tweed.elastic.run import ElasticRun
from tweed.elastic.state import Stateful
from tweed.elastic.training.sharded_member import ShardedMemberRun
from tweed.errors import Left, UsageError

#: Samples of a batch that is thrown away: two, as layers such as batch norm cannot go with one.
_FILLER = 2


class Phase(Enum):
    """The phase of an iteration, as the module has it."""

    OVER, DRAWN, COUNTED, VOID = auto(), auto(), auto(), auto()


class MemberSteps:
    """See the module.

    Args:
      run: the steps.
      numel: samples there are.
      at_most: samples of a batch; None: the whole share of a step.
      kept: what counts with a step or not at all, beside the model and the state of its optimizers.
      optimizers: whose settings do so too.
      place: which of so many processes of its member this is. They deal batches among themselves in equal
        parts, as the member's gradient is the mean of theirs; what is left, fewer samples than there are
        processes, all of them compute.

    Attributes:
      left: this process has left in good order.
      samples: how many count of the batches that the member's processes have now.
    """

    def __init__(
        self,
        run: ElasticRun | ShardedMemberRun,
        numel: int,
        at_most: int | None,
        kept: Mapping[str, Stateful],
        optimizers: Sequence[Optimizer],
        place: tuple[int, int] = (0, 1),
    ) -> None:
        self._place = place
        self._run, self._at_most, self._kept, self._optimizers = run, at_most, kept, optimizers
        self._filler = filler_of(numel)
        self._phase, self.samples, self.left = Phase.OVER, 0, False
        self._due: list[int] | None = None
        self._finite = True
        self._before: Any = None

    def begin(self, steps: int, first: Callable[[], None] | None) -> tuple[int, ...] | None:
        """The samples of the loop's next batch; None: it ends."""
        self._end_iteration()
        if self.left or self._run.steps_done >= steps:
            return None
        found = self._draw(first)
        self._before = snapshot(self._kept, self._optimizers)
        return found

    def _draw(self, first: Callable[[], None] | None = None) -> tuple[int, ...] | None:
        """The samples of the batch that is due; None: this process has left."""
        try:
            self._due = self._run.due(first)
        except Left:
            self.left = True
            return None
        self._phase = Phase.DRAWN
        found, self.samples = self._cut(self._due or ())[0]
        return found

    def upcoming(self) -> Iterator[tuple[int, ...]]:
        """The batches behind the one that `begin` has just given, if no member comes or goes."""
        batches = chain.from_iterable(self._cut(share) for share in self._run.ahead)
        return (batch for batch, _ in islice(batches, int(self._due is not None), None))

    def _cut(self, share: Sequence[int]) -> list[tuple[tuple[int, ...], int]]:
        """Batches of this process, whose sizes differ by one at most, the larger ones first; and how many
        samples all processes of the member have in each."""
        process, size = self._place
        each, left = divmod(len(share), size)
        if size > 1 and (each == 1 or left == 1):  # layers such as batch norm cannot go with one
            each = max(each - 1, 0)
        partitioned, rest = share[: each * size], share[each * size :]
        found = [
            (tuple(partitioned[(low * size + process * (high - low)) :][: high - low]), (high - low) * size)
            for low, high in self._ends(each)
        ]
        found += [(tuple(rest[low:high]), high - low) for low, high in self._ends(len(rest))]
        return found or [(self._filler, 0)]

    def _ends(self, numel: int) -> Iterable[tuple[int, int]]:
        count = -(-numel // (self._at_most or max(1, numel)))
        return pairwise(-(-numel * number // max(1, count)) for number in range(count + 1))

    def check(self) -> None:
        """A backward pass runs. Raises: UsageError if it is of no batch."""
        if self._phase is not Phase.DRAWN:
            raise UsageError(
                "a backward pass, or optimizer.step(), without samples of its own: members that come and go "
                "take one backward pass and one step for each batch of run.batches(); add losses up first"
            )

    def start(self, total: Tensor, ready: int) -> None:
        """The first `ready` values of what `computed` is to take are there, and stay as they are."""
        if self._phase is Phase.DRAWN and self._due and self.samples == len(self._due):
            self._run.start(total, ready)

    def computed(self, total: Tensor) -> Tensor | None:
        """Takes the sum over the batch's samples, `[numel]`. Returns the mean of the step; None: not yet.

        Raises: see `check`.
        """
        self.check()
        self._phase = Phase.VOID
        try:
            if self._due is not None:
                self._run.contribute(total, self.samples)
                if self._run.due() is not None:
                    return None
        except Left:
            self.left = True
            return None
        result = self._run.result()
        self._phase, self._finite = Phase.COUNTED, self._run.is_finite(result.numel())
        return result

    @property
    def is_void(self) -> bool:
        """The model is to stay as it is in this iteration."""
        return self._phase is Phase.VOID

    def stepped(self) -> None:
        """All optimizers have stepped."""
        if self._phase is Phase.COUNTED:
            self._phase = Phase.OVER

    def end(self) -> None:
        """The iteration is over, or the loop was left. Raises: UsageError if the model lacks a step."""
        if self._phase is Phase.COUNTED and self._finite:
            raise UsageError(
                f"step {self._run.steps_done} counts at all members, and optimizer.step() was not called for "
                "it here: call it once after each backward pass. If the loop was left before it, this "
                "member's model lacks the step: detach(), and join the others again"
            )
        if self._phase is Phase.VOID:
            restore(self._before, self._kept, self._optimizers)
        self._phase = Phase.OVER

    def _end_iteration(self) -> None:
        if self._phase is Phase.DRAWN:
            raise UsageError(
                "the loop has made no backward pass for the last batch of run.batches(), whose samples are "
                "in the next step: each batch needs one that reaches a parameter"
            )
        self.end()


class OptimizerSettings:
    """Settings of optimizers, as members keep them."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self._optimizers = optimizers

    def state_dict(self) -> dict[str, Any]:
        """The settings of each optimizer's groups, by the optimizer's number."""
        each = enumerate(self._optimizers)
        return {str(number): [_settings(group) for group in one.param_groups] for number, one in each}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        restore(({}, list(state.values())), {}, self._optimizers)


def filler_of(numel: int) -> tuple[int, ...]:
    """The samples of a batch that is thrown away, of so many that there are."""
    return tuple(range(min(_FILLER, numel)))


def snapshot(kept: Mapping[str, Stateful], optimizers: Sequence[Optimizer]) -> tuple[Any, Any]:
    """What is kept as it is now, and settings of optimizers."""
    states = {name: deepcopy(one.state_dict()) for name, one in kept.items()}
    return states, [[_settings(group) for group in one.param_groups] for one in optimizers]


def restore(before: tuple[Any, Any], kept: Mapping[str, Stateful], optimizers: Sequence[Optimizer]) -> None:
    """Sets back to what `snapshot` gave."""
    states, settings = before
    for name, state in states.items():
        kept[name].load_state_dict(deepcopy(state))
    for optimizer, groups in zip(optimizers, settings, strict=True):
        for group, of_group in zip(optimizer.param_groups, groups, strict=True):
            group.update(deepcopy(of_group))


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: deepcopy(value) for name, value in group.items() if name != "params"}
