"""What this process keeps for each of its process groups of the backend "tweed"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch.distributed as dist

from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import PrefixStore, Store

    from tweed._core import Losses
    from tweed.collective import Plan


@dataclass(frozen=True, slots=True)
class Kept:
    """What belongs to one group.

    Attributes:
      plan: the schedules that it runs.
      losses: the engine's account of what must stay whole, and of what was lost.
    """

    plan: Plan
    losses: Losses


# By the store that torch makes for each group and holds until the group is destroyed. A group's name would
# not do: torch gives it to another group later. The group itself is not there yet when a backend is made.
_kept: WeakKeyDictionary[Store, Kept] = WeakKeyDictionary()


def keep(store: PrefixStore, kept: Kept) -> None:
    """Keeps something for the group whose backend is being made with `store`, as long as the group lives."""
    _kept[store.underlying_store] = kept


def kept(group: dist.ProcessGroup | None) -> Kept | None:
    """What is kept for `group`, or for the default group; None for a group of another backend."""
    group = group or dist.distributed_c10d._get_default_group()
    _, store = dist.distributed_c10d._world.pg_map.get(group, (None, None))
    return None if store is None else _kept.get(store)


def plan_json(group: dist.ProcessGroup | None = None) -> str | None:
    """The schedules that `group` runs, as text for a checkpoint; `Options(plan=...)` takes it back.

    Args:
      group: a process group; None is the default group.

    Returns:
      The text; None if the group is not of the backend "tweed".
    """
    found = kept(group)
    return None if found is None else found.plan.to_json()


def engine_group(group: dist.ProcessGroup | None = None) -> Losses:
    """The engine's side of a process group: what must stay whole, and what was lost.

    Args:
      group: of the backend "tweed"; `None`: the default group.

    Raises:
      UsageError: the group is of another backend.
    """
    found = kept(group)
    if found is None:
        name = (group or dist.distributed_c10d._get_default_group()).group_name
        raise UsageError(f"group {name!r} is not of the backend 'tweed'; make it with backend=\"tweed\"")
    return found.losses
