"""A process group that is made anew of other members: torch's `_reconfigure` (2.14), experimental there.

    dist.init_process_group("tweed", enable_reconfigure=True)    # or any group of tweed
    handles = exchanged(dist._get_reconfigure_handle())          # by whatever the program has: files, a store
    dist._reconfigure(uuid=1, handles=handles).wait()            # a list orders the ranks, a set is sorted

A handle holds what others need to call this process, and stays the same as long as that runs. So nothing is
asked of a store, which may be gone with the process that kept it. Everyone works out the same group from the
handles: its number, its ranks, its schedules. Who is left out calls nothing. Where members meet over a
network, they measure it as at the first meeting.

Calls that are under way in the group before end as they would have. A `reconfigure` that fails leaves that
group as it was; the next one needs another `uuid`.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tweed.collective import NETWORK, ONE_HOST, Plan, plan
from tweed.errors import DeadlineExceeded, UsageError
from tweed.torch.agreement import RankTerms, conflict
from tweed.torch.measure_links import agree
from tweed.torch.messages import barrier
from tweed.torch.options import Options
from tweed.torch.rendezvous import group_hash, one_host, rank_terms, unreached

if TYPE_CHECKING:
    from tweed._core import Group, Node

_PREFIX = "tweed:"
NO_MEMBERS = "the group has no members yet: call torch.distributed._reconfigure first"


def encode(descriptor: bytes, terms: RankTerms) -> str:
    """A handle: what others need of a process, and what they must have been given alike."""
    text = json.dumps([base64.b85encode(descriptor).decode(), terms.encode()])
    return _PREFIX + base64.urlsafe_b64encode(text.encode()).decode()


def decode(handle: str) -> tuple[bytes, RankTerms]:
    """The inverse of `encode`. Raises: UsageError for what is no handle of tweed."""
    try:
        descriptor, terms = json.loads(base64.urlsafe_b64decode(handle.removeprefix(_PREFIX)))
        return base64.b85decode(descriptor), RankTerms.decode(terms)
    except (ValueError, TypeError, AttributeError):
        raise UsageError(
            f"{handle[:40]!r} is no handle of a group of tweed; take what "
            "torch.distributed._get_reconfigure_handle() returns there, whole"
        ) from None


@dataclass(frozen=True)
class Members:
    """Who a group is to be made of, as one of them has worked it out from the handles.

    Attributes:
      rank: this process's.
      hash: the group's, as `rendezvous.group_hash`.
    """

    rank: int
    hash: int
    descriptors: list[bytes]

    @classmethod
    def of(cls, uuid: int, handles: Sequence[str], mine: str) -> Members:
        """The members of a group that is made of these handles, in the order of ranks. Pure.

        Raises: UsageError for handles that are none, come twice, are of processes with other settings, or
          lack this process's.
        """
        if len(set(handles)) != len(handles):
            raise UsageError("reconfigure: a handle was given twice; each member has one")
        if mine not in handles:
            raise UsageError(
                f"reconfigure: the handle of this process is not among the {len(handles)} given; a process "
                "that is left out does not call reconfigure"
            )
        known = [decode(handle) for handle in handles]
        # Handles are older than their use by any time, so their clocks and sizes say nothing.
        said = [replace(terms, size=len(handles), clock_s=0.0) for _, terms in known]
        for rank, other in enumerate(said):
            if found := conflict(said[0], rank, other, 0.0):
                raise UsageError(f"reconfigure: {found}")
        number = group_hash(f"reconfigure {uuid}", "\n".join(handles).encode())
        return cls(handles.index(mine), number, [descriptor for descriptor, _ in known])


@dataclass
class Reconfigurable:
    """What one process group needs to be made anew.

    Args:
      name: the group's, for messages.
      timeout_s: how long members are waited for, if nothing else is said.
      made: called with each new group and its plan.
    """

    node: Node
    name: str
    options: Options
    timeout_s: float
    made: Callable[[Group, Plan], None]
    handle: str = field(init=False)
    _used: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        terms = rank_terms(0, self.options)
        # No rank's choice counts for the others, so all must have been given the same.
        terms = replace(terms, options={**terms.options, "schedule": self.options.overrules()})
        self.handle = encode(self.node.card(), terms)

    def make(
        self, uuid: int, handles: Sequence[str], ordered: bool, timeout_s: float | None
    ) -> tuple[Group, int]:
        """Makes the group. Returns it and this process's rank when all members have come.

        Args:
          uuid: not used before for this group.
          ordered: ranks are as the handles are given; else as they sort.

        Raises:
          UsageError: as `Members.of`, or the uuid was used.
          PeerLost, DeadlineExceeded: a member is gone, or did not come within the time; names it.
        """
        if uuid in self._used:
            raise UsageError(
                f"reconfigure: uuid {uuid} was used before for group {self.name!r}; give all members another"
            )
        members = Members.of(uuid, list(handles) if ordered else sorted(handles), self.handle)
        self._used.add(uuid)
        end = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        links = ONE_HOST if one_host(members.descriptors) else NETWORK
        missing = unreached(members.descriptors)
        chosen = plan(len(handles), links, self.options.overrules(), missing)
        group = self.node.join(
            self.name,
            members.hash,
            members.rank,
            members.descriptors,
            chosen.rows(),
            end - time.monotonic(),
            server=self.options.server,
            ltp=self.options.ltp,
        )
        # Links may be there from before: only this shows that the others have begun this group too.
        barrier(group, max(0.001, end - time.monotonic()))
        if links is NETWORK:
            asked = self.options.overrules()
            chosen = agree(group, asked, lambda: self._look(end), members.descriptors, missing)
        self.made(group, chosen)
        return group, members.rank

    def _look(self, end: float) -> None:
        if time.monotonic() > end:
            raise DeadlineExceeded(
                f"group {self.name!r}: its members have met, and did not measure their links in time; see "
                "their own output, or give reconfigure a longer timeout"
            )
