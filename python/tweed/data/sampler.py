"""Which samples a step takes, and who computes which: equal at all members, also after some are lost.

    order = GlobalOrder(numel=1797, seed=3)
    sampler = Sampler(order, batch=64)
    deal = sampler.dealt([("a", "b", "c")])           # this step's samples, in equal shares
    deal = sampler.dealt([("a", "b", "c"), ("a", "c")])    # b is lost: its share goes to the others
    sampler = sampler.counted(deal)                   # the step counts: the cursor moves on

Samples stand in one endless order: pass after pass, each a permutation of all. A *place* is a number in it. A
step takes the next `batch` places, whoever the members are, so that a lost member changes who computes a
sample, and not which update it is in. With `per_member` a step takes so many for each member instead; what a
lost one was dealt is in no sum of the others, and comes first in the next step.

Pure: who deals with the same values gets the same shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Any

from tweed.errors import DataError, UsageError
from tweed.rng import permutation, splitmix64


@dataclass(frozen=True, slots=True)
class GlobalOrder:
    """All samples, pass after pass.

    Args:
      numel: samples.
      seed: of the permutations; each pass has its own.

    Raises: UsageError if there are none.

    Example:
      >>> order = GlobalOrder(numel=3, seed=0)
      >>> sorted(order.samples(range(3, 6)))
      [0, 1, 2]
    """

    numel: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.numel < 1:
            raise UsageError("there are no samples to deal out: numel must be at least 1")

    def samples(self, places: Sequence[int]) -> list[int]:
        """Which samples stand at these places."""
        found: list[int] = []
        for number, those in groupby(places, lambda place: place // self.numel):
            key = splitmix64(self.seed ^ splitmix64(number))
            order = permutation(0, self.numel, self.numel, key).numpy()
            found += order[[place % self.numel for place in those]].tolist()
        return found


@dataclass(frozen=True, slots=True)
class Deal:
    """The shares of one step.

    Attributes:
      step: its number.
      shares: by member, the places that it computes, in the order of members' ranks.
      dropped: places of lost members that come in a later step.
    """

    step: int
    shares: tuple[tuple[str, tuple[int, ...]], ...]
    dropped: tuple[int, ...] = ()

    @property
    def places(self) -> tuple[int, ...]:
        """All that the step takes, in order."""
        return tuple(sorted(place for _, share in self.shares for place in share))

    @property
    def numel(self) -> int:
        """How many places the step takes."""
        return sum(len(share) for _, share in self.shares)

    def share(self, member: str) -> tuple[int, ...]:
        """What a member computes."""
        return dict(self.shares).get(member, ())

    def again(self, survivors: Sequence[str]) -> Deal:
        """Deals the same places again: `survivors` get those of lost members in equal shares, besides theirs.

        Raises: UsageError without survivors.
        """
        if not survivors:
            raise UsageError("nobody is left to compute the samples of lost members")
        orphans = [place for member, share in self.shares if member not in survivors for place in share]
        more = dict(zip(survivors, _cut(sorted(orphans), len(survivors)), strict=True))
        shares = tuple((member, self.share(member) + more[member]) for member in survivors)
        return replace(self, shares=shares)

    def without(self, survivors: Sequence[str]) -> Deal:
        """The shares of `survivors` alone: what the others had comes in a later step."""
        orphans = [place for member, share in self.shares if member not in survivors for place in share]
        shares = tuple((member, self.share(member)) for member in survivors)
        return replace(self, shares=shares, dropped=(*self.dropped, *sorted(orphans)))


@dataclass(frozen=True, slots=True)
class Sampler:
    """Where the steps are in the global order. A value: goes into a checkpoint as it is.

    Args:
      order: of all samples.
      batch: samples per step in all; or per member.
      per_member: see `batch`.

    Attributes:
      step: the next one.
      cursor: the first place that no step has taken.
      again: places before it that were dealt and not computed.
      repeats: the next step takes the samples of the last one once more. Of a batch of all together.

    Raises: UsageError for a batch below 1.

    Example:
      >>> deal = Sampler(GlobalOrder(10), batch=4).deal(["a", "b"])
      >>> deal.again(["b"]).shares
      (('b', (2, 3, 0, 1)),)
    """

    order: GlobalOrder
    batch: int
    per_member: bool = False
    step: int = 0
    cursor: int = 0
    again: tuple[int, ...] = field(default=())
    repeats: bool = False

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise UsageError(f"a step cannot take {self.batch} samples: batch must be at least 1")

    def deal(self, members: Sequence[str]) -> Deal:
        """The shares of the next step, as equal as can be, lower ranks first.

        Raises: UsageError without members.
        """
        if not members:
            raise UsageError("a step needs at least one member to deal its samples to")
        return _deal(self, tuple(members))

    def dealt(self, history: Sequence[Sequence[str]]) -> Deal:
        """The shares of the next step among members that have changed within it.

        Args:
          history: the members that it began with, and each time they changed those that there were then.
        """
        deal = self.deal(history[0])
        for members in history[1:]:
            deal = deal.without(members) if self.per_member else deal.again(members)
            if not deal.places:  # who joined has no share yet, and all that had one are lost
                deal = self.deal(members)
        return deal

    @property
    def where(self) -> tuple[int, ...]:
        """The next step, the cursor, and then `again`: all that changes."""
        return (self.step, self.cursor, *self.again)

    def at(self, where: Sequence[int]) -> Sampler:
        """A copy of this sampler that stands where another one stood, by its `where`.

        Raises: DataError for what is of none.

        Example:
          >>> Sampler(GlobalOrder(10), batch=4).at([3, 9, 7]).deal(["a"]).places
          (7, 9, 10, 11)
        """
        if len(where) < 2 or min(where) < 0 or max(where[2:], default=-1) >= where[1]:
            raise DataError(f"{[*where]} is nowhere in samples: a step, a cursor, and places before that")
        step, cursor, *again = where
        return replace(self, step=step, cursor=cursor, again=tuple(again))

    @property
    def samples(self) -> dict[str, int]:
        """What must be the same at all members: how many there are, the seed of their order, and the batch,
        or that of each member."""
        batch = {"per_member" if self.per_member else "batch": self.batch}
        return {"samples": self.order.numel, "seed": self.order.seed} | batch

    @property
    def position(self) -> dict[str, Any]:
        """Where the steps are in which samples, as plain values."""
        return {"where": list(self.where), "samples": self.samples}

    def resumed(self, position: Mapping[str, Any]) -> Sampler:
        """A copy of this sampler that stands where another one stood, by its `position`.

        Raises: UsageError if that one was of other samples.
        """
        if position["samples"] != self.samples:
            raise UsageError(
                f"the state is of {position['samples']}, and this process was given {self.samples}: give "
                "all the same"
            )
        return self.at(position["where"])

    def counted(self, deal: Deal) -> Sampler:
        """What it is when the step of `deal` counts.

        Raises: UsageError if that was not dealt here, or counts already.
        """
        taken = {*deal.dropped}.union(*(share for _, share in deal.shares))
        fresh = [place for place in taken if place >= self.cursor]
        if deal.step != self.step or not taken >= set(self.again[: len(taken)]):
            raise UsageError(f"step {deal.step} was dealt from another state: the next is {self.step}")
        left = tuple(place for place in self.again if place not in taken)
        return replace(
            self,
            step=self.step + 1,
            cursor=self.cursor + len(fresh),
            again=tuple(sorted((*deal.dropped, *left))),
            repeats=False,
        )


@lru_cache(maxsize=8)  # a step asks several times
def _deal(sampler: Sampler, members: tuple[str, ...]) -> Deal:
    count = sampler.batch * (len(members) if sampler.per_member else 1)
    places = [*sampler.again[:count]]
    first = sampler.cursor - count if sampler.repeats else sampler.cursor
    places += range(first, first + count - len(places))
    return Deal(sampler.step, tuple(zip(members, _cut(places, len(members)), strict=True)))


def _cut(places: Sequence[int], parts: int) -> list[tuple[int, ...]]:
    """Parts side by side whose lengths differ by one at most."""
    ends = [len(places) * part // parts for part in range(parts + 1)]
    return [tuple(places[low:high]) for low, high in pairwise(ends)]
