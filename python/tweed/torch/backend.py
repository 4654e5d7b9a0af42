"""Makes the backend of one process group: what `register_backend` hands torch."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch.distributed as dist

from tweed import metrics
from tweed.errors import UsageError
from tweed.exchange import engine
from tweed.torch.build import CannotCompile, extension, say
from tweed.torch.coalescing import end_interrupted_blocks
from tweed.torch.meeting import Place
from tweed.torch.node import node
from tweed.torch.options import Options, known_variables, unknown_variables
from tweed.torch.reconfigure import NO_MEMBERS, Reconfigurable
from tweed.torch.rendezvous import join, told_to_others

if TYPE_CHECKING:
    from torch._C._distributed_c10d import PrefixStore, Store

    from tweed._core import Group, GroupMetrics, Losses
    from tweed.collective import Plan


log = logging.getLogger("tweed")
# What decides how fast wires are and when a call fails is to be seen; sub-groups say nothing new.
_print_once = functools.cache(say)
_warn_once = functools.cache(log.warning)


@dataclass(slots=True)
class Kept:
    """What belongs to one group.

    Attributes:
      plan: the schedules that it runs; None before it has members (`enable_reconfigure`).
      losses: the engine's account of what must stay whole, and of what was lost.
      metrics: what its links have counted.
    """

    plan: Plan | None = None
    losses: Losses | None = None
    metrics: GroupMetrics | None = None


# By the store that torch makes for each group and holds until the group is destroyed. A group's name would
# not do: torch gives it to another group later. The group itself is not there yet when a backend is made.
_kept: WeakKeyDictionary[Store, Kept] = WeakKeyDictionary()
# Of groups that were split off, whose stores Python sees only later: by name, until somebody asks.
_split: dict[str, Kept] = {}


def kept(group: dist.ProcessGroup | None) -> Kept | None:
    """What is kept for `group`, or for the default group; None for a group of another backend."""
    group = group or dist.distributed_c10d._get_default_group()
    _, store = dist.distributed_c10d._world.pg_map.get(group, (None, None))
    if store is not None and (found := _split.pop(group.group_name, None)) is not None:
        _kept[store] = found
    return None if store is None else _kept.get(store)


def plan_json(group: dist.ProcessGroup | None = None) -> str | None:
    """The schedules that `group` runs, as text for a checkpoint; `Options(plan=...)` takes it back.

    Args:
      group: a process group; None is the default group.

    Returns:
      The text; None if the group is not of the backend "tweed", or has no members yet.
    """
    found = kept(group)
    return None if found is None or found.plan is None else found.plan.to_json()


def engine_group(group: dist.ProcessGroup | None = None) -> Losses:
    """The engine's side of a process group: what must stay whole, what is urgent, and what was lost.

    Args:
      group: of the backend "tweed"; `None`: the default group.

    Raises:
      UsageError: the group is of another backend.
    """
    found = kept(group)
    if found is None:
        name = (group or dist.distributed_c10d._get_default_group()).group_name
        raise UsageError(f"group {name!r} is not of the backend 'tweed'; make it with backend=\"tweed\"")
    if found.losses is None:
        raise UsageError(NO_MEMBERS)
    return found.losses


def create(given: Any, pg_options: object) -> object:
    """Called by torch for each new group that this process is a member of.

    Args:
      given: `_DistributedBackendOptions`: store, rank, size, timeout, name.
      pg_options: `tweed.torch.Options`, or an `engine.GroupRequest`; anything else is ignored, as torch
        passes other backends' around.

    Returns:
      A `c10d::Backend`, or a Python `ProcessGroup` on a machine that cannot compile one.

    Raises:
      UsageError: an impossible option.
      ForkedProcess: the engine belongs to a parent of this process.
    """
    end_interrupted_blocks()
    made, kept = _made(given, pg_options)
    store: PrefixStore = given.store  # torch's own group holds the one beneath
    _kept[store.underlying_store] = kept
    return made


def split(given: Any) -> object:
    """As `create`, for ranks of a group that `split_group` makes. Settings are the environment's."""
    made, _split[given.group_id] = _made(given, None)
    return made


def _made(given: Any, pg_options: object) -> tuple[object, Kept]:
    ranks = tuple(given.global_ranks_in_group)
    place = Place(given.store, given.group_id, given.group_rank, given.group_size, given.timeout, ranks)
    if isinstance(pg_options, engine.GroupRequest):
        place = replace(place, missing=pg_options.missing, epoch=pg_options.epoch)
    # Then nobody meets before reconfigure is called, and torch's store is not used.
    later = getattr(given, "enable_reconfigure", False)
    with nullcontext() if later else told_to_others(place):
        _set_up_log()
        _check_variables(warn=place.rank == 0)
        options = Options.resolve(pg_options)
        own = node(options)
    kept, group = Kept(), None
    begin = functools.partial(_begin, kept, options)
    if not later:
        group, terms = join(own, place, options)
        begin(group, terms.plan)
        if place.rank == 0:
            _say_what_runs(place, group.links, group.describe(), options)
    reconfigurable = Reconfigurable(own, place.name, options, place.timeout.total_seconds(), begin)
    if options.binding == "python" or not _native(options, place):
        from tweed.torch.fallback import PythonGroup

        return PythonGroup(group, given, reconfigurable), kept
    from tweed import _core

    table, address = _core.engine_table(), 0 if group is None else group.address()
    anew = (reconfigurable.handle, reconfigurable.make)
    return extension().create(table, address, given.group_rank, given.group_size, given, *anew), kept


def _begin(kept: Kept, options: Options, group: Group, plan: Plan) -> None:
    """The members of a group have met."""
    check_links(options, group.links)
    kept.plan, kept.losses, kept.metrics = plan, group.losses(), group.metrics()
    metrics.publish(kept.metrics, options.metrics_options())


def _say_what_runs(place: Place, links: Sequence[str], details: str, options: Options) -> None:
    """One short line where there is a network; the settings and the limits in force go to the log."""
    log.info("group %s: %d ranks; %s", place.name, place.size, details)
    kinds = {"shm": "by shared memory", "tcp": "by TCP", "ltp": "by LTP", "relay": "through a third rank"}
    reached = [f"{count} {words}" for kind, words in kinds.items() if (count := links.count(kind))]
    if {"tcp", "ltp", "relay"} & set(links) or options.deadline is not None:
        sealed = "sealed" if options.secret or options.secret_file else "not sealed"
        _print_once(f"{place.size} ranks; from rank 0 {', '.join(reached) or 'none'}; {sealed}")


def _check_variables(warn: bool) -> None:
    """Raises UsageError for a name that is nearly one of tweed's: nobody would notice that it does not count.

    Of other names that begin as tweed's do, it warns.
    """
    for name, meant in unknown_variables(os.environ).items():
        if meant:
            raise UsageError(
                f"{name} is set, and tweed knows no such variable; did you mean {meant}? Rename it, or type: "
                f"unset {name}"
            )
        if warn:
            known = ", ".join(known_variables())
            _warn_once(f"{name} is set, and tweed knows no such variable: it knows {known}")


def _set_up_log() -> None:
    """TWEED_LOG=info or debug shows the log of tweed, for programs that set up no logging."""
    level = os.environ.get("TWEED_LOG")
    if not level:
        return
    if level.lower() not in ("debug", "info", "warning", "error"):
        raise UsageError(f"TWEED_LOG must be debug, info, warning or error, not {level!r}")
    log.setLevel(level.upper())
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("tweed: %(message)s"))
        log.addHandler(handler)


def check_links(options: Options, links: Sequence[str]) -> None:
    """Refuses a group that does not have the links asked for.

    Args:
      options: `transport` counts.
      links: how each rank is reached: "self", "shm", "tcp", "ltp" or "relay".

    Raises:
      UsageError: shared memory was asked for, and some ranks are out of its reach; names them.
    """
    far = [rank for rank, link in enumerate(links) if link not in ("self", "shm")]
    if options.transport == "shm" and far:
        raise UsageError(
            f"transport is 'shm', and ranks {far} do not share memory with this one: they are on another "
            "host, in another network namespace, or refuse; use transport='auto'"
        )


def _native(options: Options, place: Place) -> bool:
    try:
        extension()
    except CannotCompile as reason:
        if options.binding == "native":
            raise
        if place.rank == 0:
            text = "using the Python process group, which is slower for small messages: %s"
            _warn_once(text, str(reason))
        return False
    return True


def _link_counters(group: dist.ProcessGroup | None) -> GroupMetrics | None:
    found = kept(group)
    return None if found is None else found.metrics


engine.provide(engine.Engine(engine_group, plan_json, _link_counters))
