"""Steps of members whose optimizer asks for several gradients in each, by a closure, as L-BFGS does.

What counts for all members or for none is an *evaluation*: the mean loss and its gradient over the samples of
the step, at the model as the optimizer has it then. All evaluations of a step are over the same samples. If a
member is lost, the others compute its samples within the evaluation that is under way, and share them out
among themselves in those that follow; so the optimizer asks each member the same and gets the same answers,
and takes the same step. Who joins gets the answers of others, one by one, from the begin of a step on.

    a step     moved by                                                    to
    OVER       `begin`                                                     DRAWN, with a batch
    DRAWN      `computed`: the evaluation counts                           COUNTED
               `computed`: samples are missing yet                         VOID
    VOID       `evaluation`: there is another batch                        DRAWN
    COUNTED    `evaluation`: the optimizer asks again                      DRAWN
               `stepped`: the optimizer is done                            OVER
    any        this process has left, or is given another state            VOID, and broken off

Of a step that is broken off the optimizer gets no gradients, so that it ends; then the model and all that is
kept become what they were at its begin, or what was given.

What cannot happen: an optimizer is given the mean of another evaluation than it asked for; a step that is
broken off is in the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from tweed.elastic.training.steps import MemberSteps, Phase
from tweed.errors import UsageError


class MemberEvaluations(MemberSteps):
    """The steps of members whose optimizer asks for several gradients in each. Takes the place of
    `MemberSteps`, and is made of the same arguments."""

    _batch: tuple[int, ...] | None = None  # the first of the step
    _asks = False  # the closure computes

    def begin(self, steps: int, first: Callable[[], None] | None) -> tuple[int, ...] | None:
        """The samples of the first batch of a step; None: the loop ends."""
        self._end_iteration()
        if self.left:
            return None
        self._run.begin_step()
        self._batch = None if self._run.steps_done >= steps else self._draw(first)
        return self._batch

    def computed(self, total: Tensor) -> Tensor | None:
        """Raises: UsageError outside of an evaluation."""
        if not self._asks:
            raise UsageError(
                "a backward pass outside of the closure: give optimizer.step() what run.closure(loss) has "
                "returned, which makes them all"
            )
        return super().computed(total)

    def evaluation(self) -> Iterator[tuple[int, ...]]:
        """The samples of the batches of one evaluation, each of which needs a backward pass before the next;
        none if the step is broken off.

        Raises: UsageError outside of a step, and if there was no backward pass.
        """
        if self._phase is Phase.OVER:
            raise UsageError("a closure of run.closure() was called without a batch: loop over run.batches()")
        batch = self._batch if self._phase is Phase.DRAWN else self._again()
        while batch is not None:
            self._asks = True
            yield batch
            self._asks = False
            if self._phase is Phase.DRAWN:
                raise UsageError("the loss of run.closure(loss) reaches no parameter: return it as it comes")
            batch = self._again() if self._phase is Phase.VOID else None

    def _again(self) -> tuple[int, ...] | None:
        """A further batch within the step; None: it is broken off."""
        batch = None if self.left or self._run.replaced else self._draw()
        if self.left or self._run.replaced:
            self._phase, batch = Phase.VOID, None
        return batch

    def _end_iteration(self) -> None:
        if self._phase in (Phase.DRAWN, Phase.COUNTED):
            raise UsageError(
                "the loop has taken no step for the last batch of run.batches(): call "
                "optimizer.step(closure) once for each, with what run.closure() has returned"
            )
        if self.left and self._phase is Phase.VOID:
            self._run.revert()
        self._phase = Phase.OVER
