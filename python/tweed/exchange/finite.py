"""Flags that ranks exchange before anything is compressed: who contributes, and is it finite?

Once NaN or infinity were in what a rank has sent, or in a residual, no later exchange could mend it. So all
ranks learn first, by one small all-reduce; if a single value of a single rank is not finite, nobody sends
anything, and all residuals stay as they are. Under a rule that can leave contributions out, only a rank with
such a value sends nothing, and the others do without it as long as they are the majority.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.compress.native.sparse import all_finite
from tweed.errors import NonFinite
from tweed.exchange.bucket import Bucket
from tweed.exchange.communicator import Communicator

_PIECE_NUMEL = 1 << 16
_NOTHING, _GIVEN, _FIRST_RANK = 0, 1, 2  # the greatest flag of all ranks counts


@dataclass(frozen=True, slots=True)
class FiniteFlags:
    """What all ranks know then. Equal on all.

    Attributes:
      given: per bucket and tensor, whether any rank contributes.
      bad: per bucket and tensor, a rank where it is not finite, or None.
      broken: ranks with anything that is not finite.
      said: what each rank says beside it, see `tweed.exchange.verdicts`.
    """

    given: list[list[bool]]
    bad: list[list[int | None]]
    broken: list[int]
    said: list[int]

    def error(self, names: Sequence[Sequence[str]]) -> NonFinite | None:
        """An error that names the parameters and ranks, if there are any; `names` per bucket and tensor."""
        words = self.words(names)
        if not words:
            return None
        return NonFinite(
            f"NaN or infinity in what was to be exchanged of {words}. Nothing was exchanged, and all "
            "residuals are kept. Find its cause on that rank; with float16 a torch.amp.GradScaler skips such "
            "steps"
        )

    def words(self, names: Sequence[Sequence[str]]) -> str:
        """Where something is not finite: parameters and ranks. Empty: nowhere."""
        found = [
            f"{name!r} on rank {rank}"
            for of_names, ranks in zip(names, self.bad, strict=True)
            for name, rank in zip(of_names, ranks, strict=True)
            if rank is not None
        ]
        more = f" (and of {len(found) - 3} more parameters)" if len(found) > 3 else ""
        return ", ".join(found[:3]) + more


def all_reduce_flags(
    buckets: Sequence[Bucket], given: Sequence[Sequence[bool]], comm: Communicator, says: int = 0
) -> FiniteFlags:
    """Sends what this rank contributes to all ranks, and receives what they do.

    Args:
      buckets: what this rank has.
      given: per bucket and view, whether this rank contributes to it.
      says: what this rank has to say beside it, at least 0.

    Cost: a pass over the buckets, and an all-reduce of 4 bytes per tensor and per rank.
    """
    flags = [_flags(bucket, gives, comm.rank) for bucket, gives in zip(buckets, given, strict=True)]
    mine = [flag for row in flags for flag in row]
    by_rank = [0] * comm.size
    by_rank[comm.rank] = 2 * says + (max(mine, default=_NOTHING) >= _FIRST_RANK)
    flat = torch.tensor([*mine, *by_rank], dtype=torch.int32)
    flat = flat.to(buckets[0].flat.device)
    comm.count(flat)
    comm.wait(comm.work(dist.all_reduce(flat, dist.ReduceOp.MAX, comm.everybody, async_op=True)))
    all_flags = iter(flat.tolist())
    greatest = [[next(all_flags) for _ in row] for row in flags]
    by_rank = [*all_flags]
    return FiniteFlags(
        [[flag != _NOTHING for flag in row] for row in greatest],
        [[flag - _FIRST_RANK if flag >= _FIRST_RANK else None for flag in row] for row in greatest],
        [rank for rank, word in enumerate(by_rank) if word % 2],
        [word // 2 for word in by_rank],
    )


def _flags(bucket: Bucket, given: Sequence[bool], rank: int) -> list[int]:
    flags = [_GIVEN if gives else _NOTHING for gives in given]
    if not all_finite(bucket.values.float()):
        for index, view in enumerate(bucket.views):
            if not view.float().isfinite().all():
                flags[index] = _FIRST_RANK + rank
    return flags


def fill_nan(bucket: Bucket, bad: Sequence[int | None]) -> None:
    """Makes tensors NaN that are not finite on some rank, and all others zero: equal on all ranks."""
    bucket.flat.zero_()
    for view, rank in zip(bucket.views, bad, strict=True):
        if rank is not None:
            view.fill_(math.nan)


def is_finite(values: Tensor) -> bool:
    """Whether all of these are, `[numel]`, of any type.

    Cost: a pass in pieces, as torch compares with twice as much memory as it is given.
    """
    return all(bool(piece.isfinite().all()) for piece in torch.split(values, _PIECE_NUMEL))
