"""Which tensors are the same at all ranks, by digests: these need no exchange."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import xxhash
from torch import Tensor

from tweed.exchange.bucket import as_bytes
from tweed.exchange.communicator import Communicator
from tweed.exchange.verdicts import Verdict, greatest

_LARGEST = 2**63 - 1


def compare(
    tensors: Sequence[Tensor | None],
    comm: Communicator,
    device: torch.device,
    says: Verdict = Verdict.GO_ON,
) -> tuple[list[bool], list[int]]:
    """Compares the bytes of tensors over ranks. All ranks must call it with as many.

    Args:
      tensors: any dtypes and shapes; None: it is known to differ.
      device: of tensors that the group can exchange.
      says: what this rank has to say beside it.

    Returns: whether each is the same at all ranks; what each rank says.
    Cost: a pass over the tensors, and an all-reduce of 16 bytes for each.
    """
    # A digest is the same at all ranks if the greatest one is the least one too.
    digests = [_digest(tensor) for tensor in tensors]
    words = [says if rank == comm.rank else 0 for rank in range(comm.size)]
    high = [_LARGEST if digest is None else digest for digest in digests]
    low = [_LARGEST if digest is None else ~digest for digest in digests]
    heard = greatest(comm, device, [*high, *low, *words])
    most, least = heard[: len(tensors)], heard[len(tensors) : 2 * len(tensors)]
    return [one == ~other for one, other in zip(most, least, strict=True)], heard[2 * len(tensors) :]


def _digest(tensor: Tensor | None) -> int | None:
    if tensor is None:
        return None
    return int.from_bytes(xxhash.xxh3_64_digest(as_bytes(tensor)), "little", signed=True)
