"""Who is a member, as all of them have agreed: a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from tweed._core import _Epoch


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

    @classmethod
    def of(cls, parts: _Epoch | None) -> Self:
        """What `MemberNode.epoch` gives; None: this process knows of none yet."""
        if parts is None:
            return cls(0)
        number, members, voters, missing, first_step, broken = parts
        keys, lives = (tuple(each) for each in zip(*members, strict=True))
        witnesses, addresses = tuple(key for key, _, _ in voters), tuple(at for _, _, at in voters)
        return cls(number, keys, first_step, witnesses, broken, tuple(missing), lives, addresses)

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
