"""Messages of a hub as they lie in a link of `crates/net/src/hub`: a head, and what comes behind it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tweed.errors import DataError
from tweed.hub.wire.head import HEAD, follows, head_of
from tweed.hub.wire.messages import EagerOffer, FromHub, FromWay, FromWorker

#: A message of a member that brings nothing is never longer.
SMALL_BYTES = 4096


def framed(message: FromWorker | EagerOffer | FromHub | FromWay, numbytes: int = 0) -> bytes:
    """The head of a message, behind which come so many bytes."""
    return HEAD.pack(*head_of(message, numbytes))


def split(data: bytearray) -> tuple[Sequence[float], Tensor]:
    """A head, and what came behind it, `[bytes]` uint8, without a copy. Raises DataError for what is none."""
    if len(data) < HEAD.size:
        raise DataError(f"a message of {len(data)} bytes came, and a head has {HEAD.size}")
    head, behind = HEAD.unpack_from(data), len(data) - HEAD.size
    if follows(head, behind) != behind:
        raise DataError(f"{head[2]} bytes were announced, and {behind} came")
    body = torch.frombuffer(data, dtype=torch.uint8, offset=HEAD.size) if behind else None
    return head, torch.empty(0, dtype=torch.uint8) if body is None else body
