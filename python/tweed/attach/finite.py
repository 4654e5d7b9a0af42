"""What ranks tell each other before anything is compressed: who gives something, and is it finite?

Once NaN or infinity were in what a rank has said, or in what it remembers, no later exchange could mend it.
So all ranks learn first, by one small all-reduce; if a single number of a single rank is not finite, nobody
says anything, and all that is remembered stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from tweed.attach.bucket import Bucket
from tweed.attach.wire import Wire
from tweed.compress.native.sparse import all_finite
from tweed.errors import NonFinite

_NOTHING, _GIVEN, _FIRST_RANK = 0, 1, 2  # the greatest word of all ranks counts


@dataclass(frozen=True, slots=True)
class Told:
    """What all ranks know then. Equal on all.

    Attributes:
      given: per bucket and tensor, whether any rank gives something.
      bad: per bucket and tensor, a rank where it is not finite, or None.
    """

    given: list[list[bool]]
    bad: list[list[int | None]]

    def error(self, names: Sequence[Sequence[str]]) -> NonFinite | None:
        """An error that names the parameters and ranks, if there are any; `names` per bucket and tensor."""
        found = [
            f"{name!r} on rank {rank}"
            for of_names, ranks in zip(names, self.bad, strict=True)
            for name, rank in zip(of_names, ranks, strict=True)
            if rank is not None
        ]
        if not found:
            return None
        more = f" (and of {len(found) - 3} more parameters)" if len(found) > 3 else ""
        return NonFinite(
            f"NaN or infinity in what was to be exchanged of {', '.join(found[:3])}{more}. Nothing was "
            "exchanged, and all that ranks owe each other is kept. Find its cause on that rank; with float16 "
            "a torch.amp.GradScaler skips such steps"
        )


def tell(buckets: Sequence[Bucket], given: Sequence[Sequence[bool]], wire: Wire) -> Told:
    """Tells all ranks what this one gives, and hears what they do.

    Args:
      buckets: what this rank has.
      given: per bucket and view, whether this rank gives something for it.

    Cost: a pass over the buckets, and an all-reduce of 4 bytes per tensor.
    """
    words = [_words(bucket, mine, wire.rank) for bucket, mine in zip(buckets, given, strict=True)]
    flat = torch.tensor([word for of_bucket in words for word in of_bucket], dtype=torch.int32)
    flat = flat.to(buckets[0].flat.device)
    wire.count(flat)
    wire.wait(wire.work(dist.all_reduce(flat, dist.ReduceOp.MAX, wire.group, async_op=True)))
    all_words = iter(flat.tolist())
    greatest = [[next(all_words) for _ in of_bucket] for of_bucket in words]
    return Told(
        [[word != _NOTHING for word in of_bucket] for of_bucket in greatest],
        [[word - _FIRST_RANK if word >= _FIRST_RANK else None for word in row] for row in greatest],
    )


def _words(bucket: Bucket, given: Sequence[bool], rank: int) -> list[int]:
    words = [_GIVEN if gives else _NOTHING for gives in given]
    if not all_finite(bucket.numbers.float()):
        for index, view in enumerate(bucket.views):
            if not view.float().isfinite().all():
                words[index] = _FIRST_RANK + rank
    return words
