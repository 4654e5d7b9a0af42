"""An exchange of what is finite on all ranks: flags go with the first packets, or before them.

With the packets nobody waits for flags alone. But then ranks have encoded by the time that they hear of one
whose values are not finite. So all encode with copies of what they keep, and that rank encodes nothing; when
the flags are in, all go on with the copies, or none does.

    every rank owns a range, and none can be      flags are in front of the first packets
    done without
    all else                                      an all-reduce of flags goes first
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import torch
from torch import Tensor

from tweed.compress import Update
from tweed.exchange.compressed_buffers import CompressedBuffers
from tweed.exchange.finite import FiniteFlags, OwnFlags, all_reduced
from tweed.exchange.pending import Pending
from tweed.exchange.transfers import AllToAll, Crossed, Piece, Transfer


class _NotFinite(Exception):
    """All ranks have heard `flags`: nothing is exchanged."""

    def __init__(self, flags: FiniteFlags) -> None:
        super().__init__("values of a rank are not finite")
        self.flags = flags


def exchange_if_finite(
    buffers: CompressedBuffers,
    own: OwnFlags,
    values: list[Tensor],
    silent: Callable[[Sequence[Tensor]], bool],
    check: Callable[[FiniteFlags], None],
    *,
    carried: bool,
) -> Pending[tuple[FiniteFlags, list[Update] | None]]:
    """Exchanges `values`, unless those of a rank are not finite that the rule cannot do without. Pauses while
    something is under way.

    Args:
      buffers: that they are of.
      own: what this rank says of them.
      values: as for `CompressedBuffers.exchange`; empty where `check` raises because of this rank.
      silent: whether this rank contributes nothing, once it is known which values may go.
      check: raises, on all ranks alike, because of what ranks say.
      carried: flags go with the packets; only where `buffers.carry_flags`.

    Returns: what all ranks said, and the updates; None if nothing was exchanged, as it is not finite.
    Raises: what `check` raises. What is kept is as it was then, and where nothing was exchanged. Values may
      be overwritten.
    """
    if carried:
        may_go = None if own.broken or not values else values
        try:
            return (
                yield from buffers.exchange_behind(
                    _flags(own, buffers.comm.size, check), may_go, silent=silent(values)
                )
            )
        except _NotFinite as known:
            return known.flags, None
    flags = yield from all_reduced(own, buffers.comm)
    check(flags)
    if flags.broken and not buffers.owners.can_do_without(len(flags.broken)):
        return flags, None
    broken = buffers.comm.rank in flags.broken
    if broken:
        values = [torch.zeros_like(value) for value in values]
    return flags, (yield from buffers.exchange(values, silent=silent(values) or broken))


def _flags(
    own: OwnFlags, size: int, check: Callable[[FiniteFlags], None]
) -> Generator[Transfer, Crossed, FiniteFlags]:
    """What goes in front: this rank's flags. Ends with those of all, or as the exchanges behind it are to."""
    crossed = yield AllToAll([Piece(own.packed(), 0)] * size, packed=False)
    flags = own.with_others(crossed.arrived)
    check(flags)
    if flags.broken:
        raise _NotFinite(flags)
    return flags
