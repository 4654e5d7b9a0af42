"""Whose turn it is of a model's fragments, and which of them are under way. Pure.

Fragments are exchanged one after the other, and each goes on moving while what it has sent is under way:

    idle --begin--> under way, for `delay` steps --stepped--> due, and idle again

With a delay of 0 an exchange is due at once. A fragment that is under way has no turn: a round is at least as
long as the delay.
Source: Douillard et al., "Streaming DiLoCo with overlapping communication", arXiv 2501.18512, 2025.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class UnderWay:
    """An exchange that has begun: of which `fragment`, and `steps` ago."""

    fragment: int
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Turns:
    """State of the fragments of one model.

    Args:
      fragments: how many there are.
      delay: steps after which an exchange is due.
      next: whose turn comes next.
      under_way: what has begun, the oldest first.

    Example:
      >>> turns = Turns(fragments=2, delay=1).begun()
      >>> turns.next, turns.due
      (1, [])
      >>> turns.stepped().due
      [0]
    """

    fragments: int
    delay: int
    next: int = 0
    under_way: tuple[UnderWay, ...] = ()

    def begun(self) -> Turns:
        """After the exchange of the fragment began whose turn it was."""
        following = (self.next + 1) % self.fragments
        return replace(self, next=following, under_way=(*self.under_way, UnderWay(self.next)))

    def stepped(self) -> Turns:
        """After a step, in which all that is under way has aged."""
        return replace(self, under_way=tuple(UnderWay(one.fragment, one.steps + 1) for one in self.under_way))

    @property
    def due(self) -> list[int]:
        """Fragments that are to be moved now, in this order."""
        return [one.fragment for one in self.under_way if one.steps >= self.delay]

    def without(self, fragment: int) -> Turns:
        """After the fragment was moved, or its exchange has failed."""
        return replace(self, under_way=tuple(one for one in self.under_way if one.fragment != fragment))
