"""Makes the backend of one process group: what `register_backend` hands torch."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tweed import metrics
from tweed.errors import UsageError
from tweed.exchange import engine
from tweed.torch.groups import Kept, engine_group, keep, plan_json
from tweed.torch.meeting import Place
from tweed.torch.node import node
from tweed.torch.options import Options
from tweed.torch.output import say
from tweed.torch.rendezvous import join

if TYPE_CHECKING:
    from tweed._core import Group

log = logging.getLogger("tweed")


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
    options = Options.resolve(pg_options)
    ranks = tuple(given.global_ranks_in_group)
    place = Place(given.store, given.group_id, given.group_rank, given.group_size, given.timeout, ranks)
    group, terms = join(node(options), place, options)
    check_links(options, group.links)
    keep(given.store, Kept(terms.plan, group.losses()))
    metrics.publish(group.metrics(), options.metrics_options())
    if place.rank == 0:
        log.info("group %s: %d ranks; %s", place.name, place.size, group.describe())
        if {"tcp", "ltp"} & set(group.links) or options.deadline is not None:
            _print_once(f"{place.size} ranks, {group.describe()}")
    if options.binding == "python" or not _native(options, place):
        from tweed.torch.fallback import PythonGroup

        return PythonGroup(group, given)
    return _make_native(group, given)


engine.provide(engine.Engine(engine_group, plan_json))


@functools.cache
def _print_once(text: str) -> None:
    """What decides how fast wires are and when a call fails is to be seen; sub-groups say nothing new."""
    say(text)


def check_links(options: Options, links: Sequence[str]) -> None:
    """Refuses a group that does not have the links asked for.

    Args:
      options: `transport` counts.
      links: how each rank is reached: "self", "shm", "tcp" or "ltp".

    Raises:
      UsageError: shared memory was asked for, and some ranks are out of its reach; names them.
    """
    far = [rank for rank, link in enumerate(links) if link not in ("self", "shm")]
    if options.transport == "shm" and far:
        raise UsageError(
            f"transport is 'shm', and ranks {far} do not share memory with this one: they are on another "
            "host, in another network namespace, or refuse; use transport='auto'"
        )


def _make_native(group: Group, given: Any) -> object:
    from tweed import _core
    from tweed.torch.build import extension

    return extension().create(
        _core.engine_table(), group.address(), given.group_rank, given.group_size, given
    )


def _native(options: Options, place: Place) -> bool:
    from tweed.torch.build import CannotCompile, extension

    try:
        extension()
    except CannotCompile as reason:
        if options.binding == "native":
            raise
        if place.rank == 0:
            _say_once(str(reason))
        return False
    return True


@functools.cache
def _say_once(reason: str) -> None:
    log.warning("using the Python process group, which is slower for small messages: %s", reason)
