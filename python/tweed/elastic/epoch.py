"""Who is a member, as all of them have agreed: a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Epoch:
    """Who is a member.

    Attributes:
      number: 0 before this process knows of any.
      members: keys in the order of their ranks.
      first_step: from which it holds, if nothing breaks before.
      witnesses: keys of those that decide on the next one; none: the members do.
      witness_addresses: "host:port" where each of them is called.
      broken: a member of the one before was lost, or a link that it did not list; who leaves in good order is
        not.
      missing: pairs of ranks between which nothing crosses, the lower one first. Others reach both.
      lives: which process of its key each member is, counted from 0.
    """

    number: int
    members: tuple[str, ...] = ()
    first_step: int = 0
    witnesses: tuple[str, ...] = ()
    broken: bool = False
    missing: tuple[tuple[int, int], ...] = ()
    lives: tuple[int, ...] = ()
    witness_addresses: tuple[str, ...] = ()

    @property
    def caller(self) -> str:
        """The key of the one that calls the others to a meeting: the first that all reach, if any is."""
        cut_off = {rank for pair in self.missing for rank in pair}
        ranks = range(len(self.members))
        return self.members[next((rank for rank in ranks if rank not in cut_off), 0)]

    @property
    def cut(self) -> frozenset[frozenset[str]]:
        """What is missing, by keys."""
        return frozenset(frozenset(self.members[rank] for rank in pair) for pair in self.missing)
