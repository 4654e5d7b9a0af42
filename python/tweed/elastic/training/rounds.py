"""What the iterations of a plain loop are to rounds of local steps of members that come and go.

A step that counts is here a *round*: each member takes `every` steps alone, on its share of the samples of so
many batches, from the model that all have in common. What it contributes is how far its model has moved,
times the samples of its share; so the mean movement is one over samples, and an outer optimizer has it.

    a pass     moved by                                              to
    NONE       `begin`: samples are due                              FIRST, of `every` batches
               `begin`: the round counts at others                   TAKEN, of as many batches to throw away
    FIRST      `begin`, after its batches: it is contributed, and    the round counts   NONE
                                                                     samples of a lost member are due   EXTRA
    EXTRA      the same
    TAKEN      `begin`, after its batches: the model moves           NONE

In an extra pass a survivor goes through samples of a lost member as that one would have: from the model of
the round's begin, with the settings of then. Its own inner optimizer goes on; what that keeps is a member's
own, and nobody else's: it is lost with its member, and who joins begins anew. Whenever the run is asked what
is due, the model is the common one and what is kept is as it was when the round began, since the run may give
both to others, or take theirs.

What cannot happen: a member's own steps are in the common model without having been contributed; a schedule
steps more than `every` times in a round, whoever computes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from itertools import chain, pairwise
from typing import Any

from torch.amp import GradScaler
from torch.optim import Optimizer

from tweed.elastic.run import ElasticRun
from tweed.elastic.state import Stateful
from tweed.elastic.training.movement import MemberMovement
from tweed.elastic.training.sharded_member import ShardedMemberRun
from tweed.elastic.training.steps import restore, snapshot
from tweed.errors import Left, UsageError

#: A batch of one process, and how many samples all of its member's have in it.
_Batch = tuple[tuple[int, ...], int]


class _Pass(Enum):
    NONE, FIRST, EXTRA, TAKEN = auto(), auto(), auto(), auto()


class MemberRounds:
    """See the module. In the place of `MemberSteps`.

    Args:
      run: the rounds.
      every: local steps in each.
      filler: samples of a batch that is thrown away.
      kept: what counts with a round or not at all, beside the model.
      optimizers: whose settings do so too.
      movement: of the model.
      place: which of so many processes of its member this is.
      began: called when the model is the common one, and a pass begins.

    Attributes:
      left: this process has left in good order.
    """

    def __init__(  # noqa: PLR0913 - what a loop needs of its run
        self,
        run: ElasticRun | ShardedMemberRun,
        every: int,
        filler: tuple[int, ...],
        kept: Mapping[str, Stateful],
        optimizers: Sequence[Optimizer],
        movement: MemberMovement,
        place: tuple[int, int] = (0, 1),
        began: Callable[[], None] = lambda: None,
    ) -> None:
        self._run, self._every, self._filler = run, every, filler
        self._kept, self._optimizers, self._movement = kept, optimizers, movement
        self._place, self._began = place, began
        self._pass, self._batches = _Pass.NONE, deque[_Batch]()
        self._batch: tuple[int, ...] = ()
        self._samples, self._size = 0, 1  # of the pass, and of a batch of the first one
        self._start: Any = None  # what is kept, as it was when the round began
        self._end: Any = None  # and behind the first pass
        self.left, self._waits, self._steps = False, False, 0
        # One that is found to overflow at once skips steps.
        self._is_scaled = any(isinstance(one, GradScaler) for one in kept.values())

    @property
    def is_void(self) -> bool:
        """No iteration leaves the model as it is for another reason than that its batch is thrown away."""
        return False

    def begin(self, steps: int, first: Callable[[], None] | None) -> tuple[int, ...] | None:
        """The samples of the loop's next batch; None: it ends."""
        try:
            while not self._batches:
                self._end_pass()
                if self.left or self._run.steps_done * self._every >= steps:
                    return None
                self._begin_pass(first)
        except Left:
            self.left = True
            return None
        self._waits = True
        self._batch, count = self._batches.popleft()
        self._movement.thrown_away = count == 0
        return self._batch

    def evaluation(self) -> Iterator[tuple[int, ...]]:
        """The batch of an evaluation of a closure: a local step has one. Raises: see `before_step`."""
        self.before_step()
        yield self._batch

    def before_step(self) -> None:
        """An optimizer is about to step. Raises: UsageError without a batch."""
        if not self._waits:
            raise UsageError(
                "optimizer.step() without a batch of its own: members that come and go take one step for "
                "each of run.batches()"
            )

    def stepped(self) -> None:
        """All optimizers have stepped. A gradient scaler may skip that."""
        self._waits, self._steps = False, self._steps + 1

    def end(self) -> None:
        """The loop was left: within a round all is as it was when that began, or when it counts."""
        self._batches.clear()
        if self._pass is _Pass.TAKEN:
            self._movement.take()
        elif self._pass is not _Pass.NONE:
            self._movement.back()
            restore(self._start, self._kept, self._optimizers)
        self._pass, self._end, self._waits = _Pass.NONE, None, False

    def upcoming(self) -> Iterator[tuple[int, ...]]:
        """The batches behind the one that `begin` has just given, if no member comes or goes."""
        shares = iter(self._run.ahead)
        if self._pass is not _Pass.TAKEN:
            next(shares)
        behind = chain.from_iterable(self._cut(share) for share in shares)
        return (batch for batch, _ in chain(list(self._batches), behind))

    def _begin_pass(self, first: Callable[[], None] | None) -> None:
        due = self._run.due(first)
        self._movement.begin()
        if due is None:
            self._counted()
            return
        self._began()
        self._start, self._samples, self._steps = snapshot(self._kept, self._optimizers), len(due), 0
        if self._end is None:
            self._pass, batches = _Pass.FIRST, self._cut(due)
            self._size = max(count for _, count in batches) or 1
        else:
            self._pass, batches = _Pass.EXTRA, self._in_parts(due, -(-len(due) // self._size))
        self._batches.extend(batches)

    def _counted(self) -> None:
        """The round counts: with passes of this member in it, or at others alone."""
        movement = self._movement
        movement.result, movement.finite = self._run.result(), self._run.is_finite(movement.sizes[0])
        if self._end is not None:
            restore(self._end, self._kept, self._optimizers)
            self._end, self._pass = None, _Pass.NONE
            self._movement.take()
        else:
            self._pass = _Pass.TAKEN
            self._batches.extend([(self._filler, 0)] * self._every)

    def _end_pass(self) -> None:
        if self._pass is _Pass.TAKEN:
            self._movement.take()
        elif self._pass is not _Pass.NONE:
            if self._samples and not self._steps and not self._is_scaled:
                raise UsageError(
                    "the loop has made no optimizer.step() in a whole round of local steps: take one for "
                    "each batch of run.batches()"
                )
            total = self._movement.total(self._samples)
            if self._pass is _Pass.FIRST:
                self._end = snapshot(self._kept, self._optimizers)
            restore(self._start, self._kept, self._optimizers)
            self._run.contribute(total, self._samples)
        self._pass = _Pass.NONE

    def _cut(self, share: Sequence[int]) -> list[_Batch]:
        """A batch for each local step, whose sizes differ by one at most. Of those without samples the
        gradient is thrown away."""
        found = self._in_parts(share, min(self._every, len(share)))
        return found + [(self._filler, 0)] * (self._every - len(found))

    def _in_parts(self, share: Sequence[int], parts: int) -> list[_Batch]:
        ends = [-(-len(share) * number // max(1, parts)) for number in range(parts + 1)]
        return [self._of_process(share[low:high]) for low, high in pairwise(ends)]

    def _of_process(self, batch: Sequence[int]) -> _Batch:
        """Processes of a member deal a batch in equal parts; one that they cannot, all of them compute."""
        process, size = self._place
        each, rest = divmod(len(batch), size)
        mine = batch if rest else batch[process * each : (process + 1) * each]
        return tuple(mine), len(batch)
