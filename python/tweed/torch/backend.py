"""Makes the backend of one process group: what `register_backend` hands torch."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from tweed.torch.node import node
from tweed.torch.options import Options
from tweed.torch.plans import remember
from tweed.torch.rendezvous import Place, Terms, join

if TYPE_CHECKING:
    from tweed._core import Group

log = logging.getLogger("tweed")


def create(given: Any, pg_options: object) -> object:
    """Called by torch for each new group that this process is a member of.

    Args:
      given: `_DistributedBackendOptions`: store, rank, size, timeout, name.
      pg_options: `tweed.torch.Options`; anything else is ignored, as torch passes other backends' around.

    Returns:
      A `c10d::Backend`, or a Python `ProcessGroup` on a machine that cannot compile one.

    Raises:
      UsageError: an impossible option.
      ForkedProcess: the engine belongs to a parent of this process.
    """
    options = Options.resolve(pg_options)
    place = Place(given.store, given.group_id, given.group_rank, given.group_size, given.timeout)
    group, terms = join(node(options), place, options)
    remember(place.name, terms.plan)
    if place.rank == 0:
        announce(place, group, terms)
    if options.binding == "python" or not _native(options):
        from tweed.torch.fallback import PythonGroup

        return PythonGroup(group, given)
    return _make_native(group, given)


def _make_native(group: Group, given: Any) -> object:
    from tweed import _core
    from tweed.torch.build import extension

    return extension().create(
        _core.engine_table(), group.address(), given.group_rank, given.group_size, given
    )


def _native(options: Options) -> bool:
    from tweed.torch.build import CannotCompile, extension

    try:
        extension()
    except CannotCompile as reason:
        if options.binding == "native":
            raise
        _say_once(str(reason))
        return False
    return True


@functools.cache
def _say_once(reason: str) -> None:
    log.warning("using the Python process group, which is slower for small messages: %s", reason)


def announce(place: Place, group: Group, terms: Terms) -> None:
    """One line at the start, from rank 0."""
    log.info("group %s: %d ranks; %s", place.name, place.size, group.describe())
