"""How a member finds the others; of a member that is several processes the first one does."""

from __future__ import annotations

from torch import nn

from tweed.elastic import Control, Elastic, meet
from tweed.elastic.training.sharded_member import ShardedMember
from tweed.errors import UsageError
from tweed.exchange.communicator import Stats
from tweed.exchange.context import Ungrouped
from tweed.exchange.owners import Owners
from tweed.strategy import Strategy


class MemberRendezvous:
    """Meets the other members when it is called, once: a `Connect`.

    Args:
      elastic: how many members, or this process among them.
      spread: the model, where torch's default group is that of the processes which are one member; else None.
      strategy: of the run.

    Attributes:
      sharded_member: the processes which are one member; None: it is this process.
      control: of the process that is the member; None in the others of a sharded member.
      key, address: of the member, and "host:port" at which others join.
    """

    def __init__(self, elastic: Elastic | Control, spread: nn.Module | None, strategy: Strategy) -> None:
        self._elastic, self._spread, self._strategy = elastic, spread, strategy
        self.sharded_member: ShardedMember | None = None
        self.control: Control | None = None
        self.key = self.address = ""

    def __call__(self, terms: list[str], stats: Stats) -> Ungrouped:
        """Adds to the `terms` how a sharded member is made. Raises: UsageError if another process of it than
        the first has a control; and as `tweed.elastic.meet`."""
        if self._spread is None:
            self.key, self.address = self._meet()
        else:
            self.sharded_member = ShardedMember(self._spread)
            self._meet_as_one(self.sharded_member, terms)
        return Ungrouped(stats, Owners(0, 1, self._strategy.aggregate))

    def _meet_as_one(self, sharded_member: ShardedMember, terms: list[str]) -> None:
        if isinstance(self._elastic, Control) and not sharded_member.leads:
            raise UsageError(
                "elastic=control was given by a process that is not the first of its sharded member. Only "
                "the first one is the member, and gives its control; let the others give Elastic(...)"
            )
        terms += [f"replicas of {sharded_member.size} processes", *sharded_member.placements]
        self.key, self.address = sharded_member.led("the rendezvous of members", self._meet)

    def _meet(self) -> tuple[str, str]:
        given = self._elastic
        made = given if isinstance(given, Control) else meet(given, of_agents=self.sharded_member is not None)
        self.control = made
        return made.key, made.address

    def leave(self) -> None:
        """The member leaves in good order: this process says so, or has the first one say so."""
        if self.control is not None:
            self.control.leave()
        else:
            assert self.sharded_member is not None  # without, this process is the member
            self.sharded_member.leaves = True

    def close(self) -> None:
        """Ends the links to other members, if this process has them."""
        if self.control is not None:
            self.control.close()
