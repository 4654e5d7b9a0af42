"""What this process has of a run: its part of the steps, what its caller has of them, and what that keeps.

what happens                               what this process has then
it founds, or goes on from a checkpoint    the state of the begin, or the stored one
it joins                                   a copy of the members' state, and takes results behind that
a sum is formed, or others have it         one step more that counts, and joiners are given it
it lacks what others have                  the whole state of another member

An exception may come anywhere, such as that of a signal's handler. So what is moved is a copy, which takes
its place by one assignment at the end: before that nothing has happened, and it can be done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

from torch import Tensor

from tweed.data.sampler import Sampler
from tweed.elastic.closure_step import ClosureStep
from tweed.elastic.control import Control
from tweed.elastic.member import Member
from tweed.elastic.results import Results, Transferred
from tweed.elastic.state import State
from tweed.errors import DataError, UsageError


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

    def __init__(self, control: Control, kept: Results, sampler: Sampler) -> None:
        self._control, self.kept = control, kept
        self.member, self.step, self.given = Member(control.key, sampler), ClosureStep(kept), 0
        self._told = -1  # the steps of which joiners were told last

    @property
    def now(self) -> State:
        """All of it, as joiners and checkpoints have it."""
        return self.step.state(self.member.sampler, self.member.commit.result)

    def found(self, stored: State | None, run: str) -> None:
        """A founder begins, from what was stored if there is such. Raises: see `Results`.

        Args:
          run: a new name for it; that of one founder becomes that of all.
        """
        if stored is None:
            self.step.steps = self.member.steps_done
        else:
            given = self.kept.given(stored, self.member.sampler)
            self.member = Member(self._control.key, given.sampler)
            self.member.copied(given.sampler, given.result)
            self.step.load(stored)
        self.kept.run = run
        self._loaded(self.member)

    def join(self, state: State | None) -> None:
        """Members have given this to a joiner; None: it gets it as it is let in. Raises: see `Results`."""
        if state is None:
            self.member = Member(self._control.key, self.member.sampler)
            return
        given = self.kept.given(state, self.member.sampler)
        if given.result is None:
            raise DataError("the state that members have given lacks the result of its last step")
        self._take_over(state, given, Member(self._control.key, given.sampler, given.result))

    def replace(self, state: State) -> None:
        """Another member has given its whole state."""
        given, member = self.kept.given(state, self.member.sampler), self._copy()
        member.copied(given.sampler, given.result)
        self._take_over(state, given, member)

    def contribute(self, total: Tensor, samples: int | None) -> None:
        member = self._copy()
        if member.commit.contribution is not None:  # to which this is added
            member.commit.contribution = member.commit.contribution.clone()
        member.contribute(total, samples)
        self.member = member

    def summed(self, total: Tensor) -> None:
        """A step counts: the sum of all members' addends, `[numel + 1]`."""
        member = self._copy()
        member.summed(total)
        self.member = member
        self.tell()

    def take(self, result: Tensor, where: Sequence[int]) -> None:
        """A step counts with what another member has, `[numel]`, and where its steps are with that."""
        member = self._copy()
        member.take(result, where)
        self.member = member
        self.tell()

    def follow(self, result: Tensor, where: Sequence[int]) -> None:
        """As `take`, at a joiner, which tells nobody."""
        member = self._copy()
        member.take(result, where)
        self._control.step(member.steps_done)
        self.member, self._told = member, member.steps_done

    def tell(self) -> None:
        """Joiners receive the step that has come to count, if they have not yet."""
        step, result = self.member.steps_done, self.member.commit.result
        if step != self._told and step > self.given:
            assert result is not None  # it is kept
            self._control.step(step)
            self._control.give_result(step - 1, result, self.member.sampler.where)
        self._told = step

    def result(self, *, copied: bool = False) -> Tensor:
        """The mean of the step that has come to count, or a copy, which the caller has from now on. Raises:
        UsageError if there is none."""
        if self.member.steps_done == self.given:
            raise UsageError("no step counts yet: call due() and contribute() until due() gives None")
        self.tell()
        mean, step = self.member.commit.result, copy(self.step)
        assert mean is not None  # of the step that just counted
        step.has(mean, self.member.sampler.where)
        found = mean.clone() if copied else mean
        self.step, self.given = step, self.given + 1
        return found

    def begin_step(self) -> None:
        self.end_step()
        self.step.begin(self.member.sampler, self.member.commit.result)

    def end_step(self) -> None:
        """The caller is within no step of several means."""
        if self.step.end():
            self._loaded(self.member)

    def _take_over(self, state: State, given: Transferred, member: Member) -> None:
        if self.step.take_over(state, given):
            self._loaded(member)
        else:
            self.member = member

    def _loaded(self, member: Member) -> None:
        """The caller has another state."""
        self._control.step(member.steps_done)
        self.member, self.given, self._told = member, member.steps_done, member.steps_done

    def _copy(self) -> Member:
        """To be moved. Tensors are the same."""
        member = copy(self.member)
        member.commit = replace(member.commit)
        return member
