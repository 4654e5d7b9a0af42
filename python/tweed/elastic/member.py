"""What one member does about the step that is next, while others are lost and join.

    member = Member(key, sampler)
    samples = member.samples()  # of its share, and not computed yet; None: nothing is left
    member.contribute(gradient(samples))
    member.summed(total)  # of all members' `addend`: the step counts here
    plan = member.enter(members, standings)  # a next epoch: some take the last result, or all sum anew

Pure: the live driver (`tweed.elastic.run`) and the simulated one (`tweed.simulate.elastic`) walk it.

    a member    moved by                                       to
    FOUNDER     the first `enter`                              IN
    JOINER      `take`, with each result since its copy        JOINER, one step further
                `enter`, the first                             BEHIND, or IN if it has all that others have
    BEHIND      `take`, up to the step that others are at      IN
                `copied`, if it gets no more results           IN
    IN          `summed`, or `take` after a loss               IN, one step further
                `enter`, after each change of members          IN

To whom the samples of a step were dealt is a history: its members, and then those of each epoch that was
entered within it. Members take the longest history of those that have counted the most steps, of which all
others are beginnings. So all deal equally, and nobody computes its own part twice. With a batch per member
what a lost one was dealt comes in the next step; who takes a result receives with it where the steps are.

What cannot happen: members of one epoch deal the samples of a step in different ways; a member that is behind
contributes to a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

from torch import Tensor

from tweed.data.sampler import Deal, Sampler
from tweed.elastic.commit import Commit, Position, SumAnew, Take, compare
from tweed.errors import ShapeMismatch, TweedError

#: To whom the samples of a step were dealt: its members, and then those of each epoch within it.
History = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """What a member tells the others of an epoch that it enters.

    Attributes:
      position: what it has of the last step and of the next.
      history: of the step that is next; empty: it has none yet.
      behind: it gets results of others, and gives nothing yet.
      cut_off: it is behind, and gets no more results: who gave them was lost.
      where: its steps are in the samples, as `Sampler.where` has it.
    """

    position: Position
    history: History
    where: tuple[int, ...]
    behind: bool
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class Ahead:
    """A member's samples in the next step, those that it has not computed yet, and in the steps behind that
    one, if no member comes or goes; without end.

    Attributes:
      key: the member's.
      members: of the step behind the next.
      sampler: where the steps are.
      deal: the shares of the next step; None: it has none in any.
      missing: places in it that it has not computed yet.
    """

    key: str
    members: tuple[str, ...]
    sampler: Sampler
    deal: Deal | None
    missing: tuple[int, ...]

    def __iter__(self) -> Iterator[list[int]]:
        if self.deal is None:
            yield from repeat(list[int]())
        sampler, deal = self.sampler, self.deal
        assert deal is not None  # that would have no end
        yield sampler.order.samples(self.missing)
        while True:
            sampler = sampler.counted(deal)
            deal = sampler.deal(self.members)
            yield sampler.order.samples(deal.share(self.key))


class Member:
    """See the module.

    Args:
      key: its permanent id.
      sampler: whose batch is that of all members together, or of each.
      result: of the last step in the state that a joiner has copied. None: it founds.

    Attributes:
      commit: what it has of the last step and of the next.
      sampler: where the steps are.
    """

    def __init__(self, key: str, sampler: Sampler, result: Tensor | None = None) -> None:
        self.key, self.sampler = key, sampler
        self.commit = Commit(steps_done=sampler.step, result=result)
        self._most = sampler.step  # that count anywhere, as it entered the last epoch
        self._contributes_from: int | None = sampler.step if result is None else None
        self._members: tuple[str, ...] = ()
        self._history: History = ()
        self._history_there: History = ()  # of the step behind, at those who have counted the next
        self._computed: tuple[int, ...] = ()

    @property
    def steps_done(self) -> int:
        """Steps that count here."""
        return self.commit.steps_done

    @property
    def behind(self) -> bool:
        """Others have counted steps that this one has yet to be fed."""
        return self._contributes_from is None or self.steps_done < self._contributes_from

    def standing(self, *, cut_off: bool) -> Standing:
        """What it tells the others; see there."""
        # Who is cut off needs the whole state even if it has as many steps; so it stays until it has that.
        where = self.sampler.where
        return Standing(self.commit.position, self._history, where, self.behind or cut_off, cut_off)

    @property
    def deal(self) -> Deal:
        """The shares of the step that is next."""
        return self.sampler.dealt(self._history)

    def repeat(self, repeats: bool) -> None:
        """Whether the next step is over the samples of the last one once more; all members say the same."""
        self.sampler = replace(self.sampler, repeats=repeats)

    def samples(self) -> list[int] | None:
        """The samples of its share that it has not computed yet, for `contribute`; None: nothing is left.

        There are none in it if there are more members than samples: it contributes nothing then, once.
        """
        places = self._missing()
        if places or self.commit.contribution is None:
            return self.sampler.order.samples(places)
        return None

    @property
    def ahead(self) -> Ahead:
        """Its samples in the steps ahead, as `Ahead` has them; none while others feed it."""
        if self.behind:
            return Ahead(self.key, self._members, self.sampler, None, ())
        return Ahead(self.key, self._members, self.sampler, self.deal, self._missing())

    def contribute(self, total: Tensor, samples: int | None = None) -> None:
        """The sum of the gradients of the first `samples` of `samples()`, `[numel]`; None: of all. It is kept
        as it is, so it must stay so.

        Types below 32 bits are kept and summed in float32: a sum over samples, and their number, have no room
        in them.

        Raises: ShapeMismatch if others have another number of values: to sum them would end all members.
        """
        last = self.commit.result
        if last is not None and last.numel() != total.numel():
            raise ShapeMismatch(
                f"this process contributes {total.numel()} values to step {self.steps_done}, and members had "
                f"{last.numel()} of the step before: give it the model that they have, and start it again"
            )
        places = self._missing()[:samples]
        wide = total if total.element_size() >= 4 else total.float()
        self.commit.contribute(self.steps_done, wide, len(places))
        self._computed += places

    @property
    def contribution(self) -> tuple[Tensor, int]:
        """What is summed over all members, `[numel]`, and how many samples are in it."""
        assert self.commit.contribution is not None  # it was just made
        return self.commit.contribution, self.commit.samples

    def summed(self, total: Tensor) -> None:
        """The sum of all members' contributions, and behind it that of their samples, `[numel + 1]`: the step
        counts here, with the mean, which takes the sum's place in memory.

        Raises: TweedError if other samples are in it than were dealt: a defect of tweed.
        """
        deal = self.deal
        came, dealt = int(total[-1]), deal.numel
        if came != dealt:
            raise TweedError(
                f"the sum of step {self.steps_done} is over {came} samples, and the members were dealt "
                f"{dealt}: members disagree on the samples of the step, a defect of tweed. Please report it"
            )
        self._count(self.sampler.counted(deal), total[:-1].div_(came))
        self._history = (self._members,)

    def take(self, result: Tensor, where: Sequence[int]) -> None:
        """The next step counts at others, with this result, `[numel]`: so it does here.

        Args:
          where: their steps are then, as `Sampler.where` has it: its members may have been others than here.
        """
        self._count(self.sampler.at(where), result)
        self._history = self._history_there or self._history
        self._history_there = ()

    def copied(self, sampler: Sampler, result: Tensor | None) -> None:
        """It has the others' whole state: where their steps were in it, and the result of the last. It is
        behind until it has taken those that count since."""
        self.sampler, self.commit = sampler, Commit(steps_done=sampler.step, result=result)
        self._contributes_from = self._most
        self._history = self._history_there or self._history
        self._history_there = ()

    def enter(self, members: Sequence[str], standings: Mapping[int, Standing]) -> Take | SumAnew:
        """A next epoch. Returns what its members do first, the same at all.

        Args:
          members: keys in the order of their ranks.
          standings: by rank, what each has sent.

        Raises: TweedError if all that are left have yet to be fed.
        """
        able = {rank: standing for rank, standing in standings.items() if not standing.behind}
        if not able:
            raise TweedError(
                "all members that had the last step were lost, and those that have joined do not have it "
                "yet: go on from a checkpoint, or begin anew"
            )
        plan = compare({rank: standing.position for rank, standing in able.items()})
        most = max(standing.position.counted for standing in able.values())
        histories = [one.history for one in able.values() if one.position.counted == most]
        self._members, self._most = tuple(members), most
        there = self._entered(max(histories, key=len))
        if self.behind:
            self._contributes_from, self._history = most, there
        elif self.steps_done < most:  # all who have that result may be lost before it is taken
            self._history_there, self._history = there, self._entered(self._history)
        else:
            self._history_there, self._history = (), there
        return plan

    def cut_off(self, standings: Mapping[int, Standing]) -> tuple[int, tuple[int, ...]]:
        """Who gives its whole state, and to whom, by rank, as no results reach these any more.

        Also to one with as many steps: those that were lost alone may have counted the last, to other bits.
        """
        able = {rank: one.position.counted for rank, one in standings.items() if not one.behind}
        most = max(able.values())
        giver = min(rank for rank, counted in able.items() if counted == most)
        return giver, tuple(rank for rank, one in standings.items() if one.cut_off)

    def _entered(self, history: History) -> History:
        return history if history and history[-1] == self._members else (*history, self._members)

    def _count(self, after: Sampler, result: Tensor) -> None:
        self.commit.count(after.step - 1, result)
        self.sampler, self._computed = after, ()

    def _missing(self) -> tuple[int, ...]:
        computed = set(self._computed)
        return tuple(place for place in self.deal.share(self.key) if place not in computed)
