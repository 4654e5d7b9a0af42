"""What this process has of a run: its part of the steps, what its caller has of them, and what that keeps.

what happens                               what this process has then
it founds, or goes on from a checkpoint    the state of the begin, or the stored one
it joins                                   a copy of the members' state, and takes results behind that
a sum is formed, or others have it         one step more that counts, and joiners are given it
it lacks what others have                  the whole state of another member
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from tweed.data.sampler import Sampler
from tweed.elastic.caller_step import CallerStep
from tweed.elastic.control import Control
from tweed.elastic.kept import Given, Kept
from tweed.elastic.state import State
from tweed.errors import DataError, UsageError
from tweed.exchange.member import Member


class LocalState:
    """See the module.

    Args:
      control: hears of each step that counts here, and gives its result to joiners.
      kept: what the caller keeps.
      sampler: where the steps are.

    Attributes:
      member: what this process has of the steps.
      step: of the caller.
      given: means that the caller has had: of a plain loop as many as steps.
    """

    def __init__(self, control: Control, kept: Kept, sampler: Sampler) -> None:
        self._control, self.kept = control, kept
        self.member, self.step, self.given = Member(control.key, sampler), CallerStep(kept), 0

    @property
    def now(self) -> State:
        """All of it, as joiners and checkpoints have it."""
        return self.step.state(self.member.sampler, self.member.commit.result)

    def found(self, stored: State | None) -> None:
        """A founder begins, from what was stored if there is such. Raises: see `Kept`."""
        if stored is None:
            self.step.steps = self.member.counted
        else:
            given = self.kept.given(stored, self.member.sampler)
            self.member = Member(self._control.key, given.sampler)
            self.member.copied(given.sampler, given.result)
            self.step.load(stored)
        self._loaded()

    def join(self, state: State | None) -> None:
        """Members have given this to a joiner; None: it gets it as it is let in. Raises: see `Kept`."""
        if state is None:
            self.member = Member(self._control.key, self.member.sampler)
            return
        given = self.kept.given(state, self.member.sampler)
        if given.result is None:
            raise DataError("the state is of no step that counts")
        self.member = Member(self._control.key, given.sampler, given.result)
        self._take_over(state, given)

    def replace(self, state: State) -> None:
        """Another member has given its whole state."""
        given = self.kept.given(state, self.member.sampler)
        self.member.copied(given.sampler, given.result)
        self._take_over(state, given)

    def summed(self, total: Tensor) -> None:
        """A step counts: the sum of all members' addends, `[numel + 1]`."""
        self.member.summed(total)
        self._counted()

    def take(self, result: Tensor, where: Sequence[int]) -> None:
        """A step counts with what another member has, `[numel]`, and where its steps are with that."""
        self.member.take(result, where)
        self._counted()

    def result(self) -> Tensor:
        """The mean of the step that has come to count, which the caller has from now on. Raises: UsageError
        if there is none."""
        if self.member.counted == self.given:
            raise UsageError("no step counts yet: call due() and contribute() until due() gives None")
        self.given += 1
        mean = self.member.commit.result
        assert mean is not None  # of the step that just counted
        self.step.has(mean, self.member.sampler.where)
        return mean

    def begin_step(self) -> None:
        """See `ElasticRun.begin_step`."""
        self.end_step()
        self.step.begin(self.member.sampler, self.member.commit.result)

    def end_step(self) -> None:
        """The caller is within no step of several means."""
        if self.step.end():
            self._loaded()

    def _take_over(self, state: State, given: Given) -> None:
        if self.step.take_over(state, given):
            self._loaded()

    def _loaded(self) -> None:
        """The caller has another state."""
        self.given = self.member.counted
        self._control.step(self.given)

    def _counted(self) -> None:
        step, result = self.member.counted, self.member.commit.result
        assert result is not None  # it has just been kept
        self._control.step(step)
        self._control.give_result(step - 1, result, self.member.sampler.where)
