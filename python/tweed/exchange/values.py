"""Plain values and tensors that ranks of a group tell each other: a gather and a broadcast.

Not torch's object collectives, which unpickle what a peer sends, and so run its code. For small things and
seldom, but for states: each is two collectives, of lengths and of bytes. What a rank sends is read as
`encoding.unpacked` reads it, and the length that it claims is checked before memory is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.errors import DataError
from tweed.exchange.encoding import STRUCTURE_BYTES, packed, unpacked


def gather(
    group: dist.ProcessGroup | None,
    value: Any,
    *,
    most_bytes: int = STRUCTURE_BYTES,
    classes: Sequence[type] = (),
) -> list[Any]:
    """`value` of every rank of `group`, by rank. All ranks must call this alike.

    Args:
      group: None is the default group.
      value: see `encoding.packed`.
      most_bytes: that a rank may give; the same at all ranks.
      classes: dataclasses that may be in it.

    Raises:
      DataError: a rank gives what is longer, or cannot be read: its number, at all ranks.
      UsageError: `value` has what is no plain value.

    Cost: all-gathers of 8 bytes, and of the bytes of the longest.
    """
    own = torch.frombuffer(packed(value), dtype=torch.uint8)
    lengths = [int(length) for length in _all_gather(group, torch.tensor([len(own)], device="cpu"))]
    for rank, length in enumerate(lengths):
        _check(rank, length, most_bytes)
    padded = torch.nn.functional.pad(own, (0, max(lengths) - len(own)))
    found = _all_gather(group, padded)
    return [
        _read(rank, data[:length], classes)
        for rank, (data, length) in enumerate(zip(found, lengths, strict=True))
    ]


def broadcast(
    group: dist.ProcessGroup | None,
    value: Any,
    giver: int,
    *,
    most_bytes: int = STRUCTURE_BYTES,
    classes: Sequence[type] = (),
) -> Any:
    """`value` of the rank `giver`, at all ranks; what the others give does not count. See `gather`.

    Raises:
      DataError: at the others, as `gather`.

    Cost: broadcasts of 8 bytes, and of its bytes.
    """
    gives = _group(group).rank() == giver
    data = torch.frombuffer(packed(value), dtype=torch.uint8) if gives else torch.empty(0, device="cpu")
    length = int(_broadcast(group, torch.tensor([len(data)], device="cpu"), giver))
    _check(giver, length, most_bytes)
    if not gives:
        data = torch.empty(length, dtype=torch.uint8, device="cpu")
    data = _broadcast(group, data, giver)
    return value if gives else _read(giver, data, classes)


def _check(rank: int, length: int, most_bytes: int) -> None:
    if not 0 < length <= most_bytes:
        raise DataError(
            f"rank {rank} claims to send {length} bytes, and {most_bytes} at most are taken: see that it "
            "runs the same version of tweed with the same model, and who else has the secret"
        )


def _read(rank: int, data: Tensor, classes: Sequence[type]) -> Any:
    try:
        return unpacked(data.numpy().data, classes)
    except DataError as error:
        raise DataError(
            f"rank {rank} has sent what is no plain value, and nothing of it was run: {error}. See that it "
            "runs the same version of tweed, and who else has the secret"
        ) from None


def _group(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    return group or dist.distributed_c10d._get_default_group()  # members' need not be a part of that


def _device(group: dist.ProcessGroup | None) -> torch.device:
    """The device of tensors that the group can exchange."""
    devices = _group(group)._device_types
    cpu = torch.device("cpu")
    return cpu if cpu in devices or not devices else torch.device(devices[0].type)


def _all_gather(group: dist.ProcessGroup | None, values: Tensor) -> list[Tensor]:
    values = values.to(_device(group))
    found = [torch.empty_like(values) for _ in range(_group(group).size())]
    dist.all_gather(found, values, group=group)
    return [one.cpu() for one in found]


def _broadcast(group: dist.ProcessGroup | None, values: Tensor, giver: int) -> Tensor:
    values = values.to(_device(group))
    dist.broadcast(values, group=group, group_src=giver)
    return values.cpu()
