"""Flags that ranks exchange before anything counts: who contributes, and is it finite?

Once NaN or infinity were in what a rank has sent, or in a residual, no later exchange could mend it. So all
ranks learn first, by one small all-reduce or by bytes in front of the first packets (`flagged`); if a single
value of a single rank is not finite, nothing is exchanged, and all residuals stay as they are. Under a rule
that can leave contributions out, only a rank with such a value sends nothing, and the others do without it as
long as they are the majority.
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
from tweed.exchange.pending import Pending, wait_for

_PIECE_NUMEL = 1 << 16
_NOTHING, _GIVEN, _BAD = 0, 1, 2  # the greatest flag of all ranks counts; of bad ones that of the last rank


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


@dataclass(frozen=True, slots=True)
class OwnFlags:
    """What one rank says.

    Attributes:
      flags: per bucket and tensor, whether this rank contributes, and whether what it has is not finite.
      says: beside it, from 0 to 127.
      device: of the buckets.
    """

    flags: list[list[int]]
    says: int
    device: torch.device

    @classmethod
    def of(cls, buckets: Sequence[Bucket], given: Sequence[Sequence[bool]], says: int = 0) -> OwnFlags:
        """Looks at what this rank has. Args: see `all_reduce_flags`. Cost: a pass over the buckets."""
        flags = [_flags(bucket, gives) for bucket, gives in zip(buckets, given, strict=True)]
        return cls(flags, says, buckets[0].flat.device)

    @property
    def broken(self) -> bool:
        """Whether anything is not finite."""
        return any(_BAD in of_bucket for of_bucket in self.flags)

    @property
    def word(self) -> int:
        """What it says, and whether anything is not finite."""
        return 2 * self.says + self.broken

    def codes(self, rank: int) -> list[int]:
        """Per tensor its flag, so that the greatest of all ranks counts: bad ones name `rank`."""
        every = [flag for of_bucket in self.flags for flag in of_bucket]
        return [flag + rank if flag == _BAD else flag for flag in every]

    def packed(self) -> Tensor:
        """As it goes in front of packets: `[1 + tensors]` uint8."""
        return torch.tensor([self.word, *self.codes(0)], dtype=torch.uint8, device=self.device)

    def with_others(self, packed: Sequence[Tensor]) -> FiniteFlags:
        """What all ranks know, once they have what each has `packed`, by rank.

        Example:
          >>> good, bad = (OwnFlags([[flag, 1]], 0, torch.device("cpu")) for flag in (0, 2))
          >>> good.with_others([good.packed(), bad.packed()]).bad
          [[1, None]]
        """
        words, *flags = torch.stack([*packed]).T.tolist()
        codes = [max(flag + rank * (flag == _BAD) for rank, flag in enumerate(row)) for row in flags]
        return self.known(codes, words)

    def known(self, codes: Sequence[int], words: Sequence[int]) -> FiniteFlags:
        """What all ranks know, of the greatest code of each tensor and the word of each rank."""
        rest = iter(codes)
        greatest = [[next(rest) for _ in of_bucket] for of_bucket in self.flags]
        return FiniteFlags(
            [[code != _NOTHING for code in of_bucket] for of_bucket in greatest],
            [[code - _BAD if code >= _BAD else None for code in of_bucket] for of_bucket in greatest],
            [rank for rank, word in enumerate(words) if word % 2],
            [word // 2 for word in words],
        )


def all_reduce_flags(
    buckets: Sequence[Bucket], given: Sequence[Sequence[bool]], comm: Communicator, says: int = 0
) -> FiniteFlags:
    """Sends what this rank contributes to all ranks, and receives what they do.

    Args:
      buckets: what this rank has.
      given: per bucket and view, whether this rank contributes to it.
      says: what this rank has to say beside it, from 0 to 127.

    Cost: a pass over the buckets, and an all-reduce of 4 bytes per tensor and per rank.
    """
    return wait_for(all_reduced(OwnFlags.of(buckets, given, says), comm))


def all_reduced(own: OwnFlags, comm: Communicator) -> Pending[FiniteFlags]:
    """As `all_reduce_flags`, when this rank has looked at what it has. Pauses while flags are under way."""
    by_rank = [0] * comm.size
    by_rank[comm.rank] = own.word
    codes = own.codes(comm.rank)
    flat = torch.tensor([*codes, *by_rank], dtype=torch.int32, device=own.device)
    comm.count(flat)
    work = comm.work(dist.all_reduce(flat, dist.ReduceOp.MAX, comm.everybody, async_op=True))
    yield
    comm.wait(work)
    found = flat.tolist()
    return own.known(found[: len(codes)], found[len(codes) :])


def _flags(bucket: Bucket, given: Sequence[bool]) -> list[int]:
    flags = [_GIVEN if gives else _NOTHING for gives in given]
    if not all_finite(bucket.values.float()):
        for index, view in enumerate(bucket.views):
            if not view.float().isfinite().all():
                flags[index] = _BAD
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
    native = values.dtype == torch.float32
    pieces = torch.split(values, _PIECE_NUMEL)
    return all(all_finite(piece) if native else bool(piece.isfinite().all()) for piece in pieces)
