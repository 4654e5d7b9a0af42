"""What an engine's group offers beyond torch's interface, and the group that a strategy asks for.

The torch backend provides it when it is loaded, which is before the first group of its own exists; the
exchanges import no backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from tweed.errors import UsageError
from tweed.strategy import Strategy
from tweed.transport import Ltp

if TYPE_CHECKING:  # `tweed.Options` needs this module, and loads no torch
    import torch.distributed as dist


class Delivery(Protocol):
    """What the engine reports of one operation, when all of this rank's contributions to it are through.

    Attributes:
      sent_bytes, lost_bytes: of this rank's contributions.
      by_rank: bytes sent to and received from each other rank as contributions, and how many were lost.
      lost: what did not arrive: address in this rank's memory, and values as bytes. Empty if nobody asked.
      missing: what of others' contributions did not arrive, where they are not summed: address in this rank's
        memory, and how many bytes, which are zero.
    """

    @property
    def sent_bytes(self) -> int:
        """How many bytes of contributions this rank has sent."""

    @property
    def lost_bytes(self) -> int:
        """How many bytes of this rank's contributions were lost."""

    @property
    def by_rank(self) -> dict[int, tuple[int, int]]:
        """For each other rank, the bytes of contributions to and from it, and how many of them were lost."""

    @property
    def lost(self) -> Sequence[tuple[int, bytes]]:
        """What did not arrive: addresses in this rank's memory, and values as bytes."""

    @property
    def missing(self) -> Sequence[tuple[int, int]]:
        """What of others' contributions did not arrive: addresses in this rank's memory, and how many
        bytes."""


class LossReports(Protocol):
    """What the engine's group offers where contributions may lose parts, or are urgent."""

    def keep_whole(self, address: int, bytes: int) -> None:
        """Memory of this rank at `address` never loses parts from now on; with 0 bytes it may again."""

    def may_lose(self, address: int, bytes: int) -> None:
        """An all-to-all from and to such memory carries contributions; 0 bytes: no more."""

    def set_urgency(self, address: int, bytes: int, urgency: int) -> None:
        """Collectives on that memory are so urgent at this rank from now on; 0: as what is not named."""

    def take_deliveries(self) -> Sequence[Delivery]:
        """How operations since the last call were delivered, oldest first."""


class LinkCounters(Protocol):
    """What the engine counts on a group's links; see `metrics.snapshot.Link`."""

    def stats(self) -> list[dict[str, Any]]:
        """The counters of the links to all ranks, this one included; empty once this process has left the
        group."""


class Engine(NamedTuple):
    """How to ask the backend about one of its groups (None: the default group).

    Attributes:
      loss_reports: raises UsageError for a group of another backend.
      plan: the schedules that the group runs, as text; None for a group of another backend.
      link_counters: None for a group of another backend.
    """

    loss_reports: Callable[[dist.ProcessGroup | None], LossReports]
    plan: Callable[[dist.ProcessGroup | None], str | None]
    link_counters: Callable[[dist.ProcessGroup | None], LinkCounters | None]


_provided: list[Engine] = []
_settings: list[Callable[[], list[str]]] = []


def provide(engine: Engine) -> None:
    """Called by the backend, once."""
    _provided[:] = [engine]


def provide_settings(found: Callable[[], list[str]]) -> None:
    """Called by the backend when it is registered, before there is a group: says how to find its
    `settings`."""
    _settings[:] = [found]


def settings() -> list[str]:
    """What all ranks of a group of this process must have alike, as its environment has it, a line each."""
    return _settings[0]() if _settings else []


def loss_reports(group: dist.ProcessGroup | None) -> LossReports:
    """The engine's side of a group. Raises UsageError for a group of another backend."""
    if not _provided:
        raise UsageError("no group of this process is of the backend 'tweed'; make it with backend=\"tweed\"")
    return _provided[0].loss_reports(group)


def plan(group: dist.ProcessGroup | None) -> str | None:
    """The schedules that `group` runs, as text; None for a group of another backend."""
    return _provided[0].plan(group) if _provided else None


def link_counters(group: dist.ProcessGroup | None) -> list[dict[str, Any]]:
    """What links of `group` have counted, by rank; empty for a group of another backend."""
    found = _provided[0].link_counters(group) if _provided else None
    return [] if found is None else found.stats()


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """What a strategy, or members that come and go, ask of a process group: given to the backend as
    `pg_options`. What is None is as the environment has it.

    Attributes:
      missing: pairs of ranks between which nothing crosses; the same at all ranks.
      epoch: of members that come and go, whose group it is: nothing of another epoch is taken for it.
    """

    transport: Ltp | None = None
    server: int | None = None
    compare_clocks: bool | None = None
    missing: Sequence[tuple[int, int]] = ()
    epoch: int | None = None


def own_group(strategy: Strategy, group: dist.ProcessGroup | None) -> dist.ProcessGroup | None:
    """A group of backend "tweed" over the ranks of `group`, with the strategy's transport and server, or for
    sums that begin in its order; None if it names none of them.

    All else is as the environment has it, as for `tweed.torch.Options`. All ranks of `group` must call it.
    """
    import torch.distributed as dist

    if strategy.transport is None and strategy.collective is None and strategy.order is None:
        return None
    server = None if strategy.collective is None else strategy.collective.rank
    request = GroupRequest(cast(Ltp | None, strategy.transport), server)
    ranks = dist.get_process_group_ranks(group)
    everybody = len(ranks) == dist.get_world_size()
    world = dist.distributed_c10d._world
    named = world.group_count  # groups that all ranks make are called by it, and others would be ahead
    made = dist.new_group(ranks, backend="tweed", pg_options=request, use_local_synchronization=not everybody)
    if not everybody:
        world.group_count = named
    assert isinstance(made, dist.ProcessGroup)  # this process is one of its members
    return made
