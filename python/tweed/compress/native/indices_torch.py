"""What `sparse` does with indices, by torch's operators. Arguments have been checked."""

from __future__ import annotations

import torch
from torch import Tensor

from tweed.compress.native.sparse import BLOCK

_SPAN_BYTES = 5  # that a gap of 31 bits may lie in


def delta_encode(indices: Tensor) -> Tensor:
    """Codes indices by the gaps between them, as `sparse.delta_encode` does."""
    wide = indices.long()
    gaps = torch.diff(wide, prepend=wide.new_full((1,), -1)) - 1
    widths = _widths(gaps)
    at, ends = _places(widths, len(gaps))
    total = int(ends[-1]) if len(ends) else 0
    packed = torch.zeros(total + _SPAN_BYTES, dtype=torch.int32, device=indices.device)
    shifted = gaps << (at % 8)
    for byte in range(_SPAN_BYTES):
        packed.index_add_(0, at // 8 + byte, ((shifted >> (8 * byte)) & 0xFF).int())
    return torch.cat([widths.to(torch.uint8), packed[:total].to(torch.uint8)])


def _widths(gaps: Tensor) -> Tensor:
    """Bits of the largest gap of each block."""
    blocks = -(-len(gaps) // BLOCK)
    padded = gaps.new_zeros(blocks * BLOCK)
    padded[: len(gaps)] = gaps
    powers = 1 << torch.arange(31, device=gaps.device)
    return torch.searchsorted(powers, padded.view(blocks, BLOCK).amax(1), right=True)


def _places(widths: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The bit that each gap begins with, and the byte that each block ends before."""
    sizes = widths * BLOCK // 8
    if count % BLOCK:
        sizes[-1] = (widths[-1] * (count % BLOCK) + 7) // 8
    ends = sizes.cumsum(0)
    number = torch.arange(count, device=widths.device)
    block = number // BLOCK
    return 8 * (ends - sizes)[block] + widths[block] * (number % BLOCK), ends


def delta_decode(data: Tensor, count: int, numel: int) -> Tensor | None:
    """The indices that `data` codes, as `sparse.delta_decode` has them; None if it codes none."""
    blocks = -(-count // BLOCK)
    widths = data[:blocks].long()
    if not 0 <= count <= numel or len(widths) < blocks or bool((widths > 31).any()):
        return None
    at, ends = _places(widths, count)
    if blocks + (int(ends[-1]) if blocks else 0) != len(data):
        return None
    packed = torch.cat([data[blocks:], data.new_zeros(_SPAN_BYTES)]).long()
    spans = sum((packed[at // 8 + byte] << (8 * byte) for byte in range(_SPAN_BYTES)), torch.zeros_like(at))
    gaps = (spans >> (at % 8)) & ((1 << widths[torch.arange(count, device=data.device) // BLOCK]) - 1)
    return _below((gaps + 1).cumsum(0) - 1, numel)


def _below(indices: Tensor, numel: int) -> Tensor | None:
    return None if len(indices) and int(indices[-1]) >= numel else indices.int()


def bitmap_encode(indices: Tensor, numel: int) -> Tensor:
    """Codes indices as a bit per value, as `sparse.bitmap_encode` does."""
    marks = torch.zeros(-(-numel // 8) * 8, dtype=torch.uint8, device=indices.device)
    marks[indices.long()] = 1
    return (marks.view(-1, 8) << _bits(indices)).sum(1, dtype=torch.uint8)


def bitmap_decode(data: Tensor, count: int, numel: int) -> Tensor | None:
    """The indices that `data` codes, as `sparse.bitmap_decode` has them; None if it codes none."""
    indices = ((data[:, None] >> _bits(data)) & 1).view(-1).nonzero().squeeze(1)
    if len(data) != (numel + 7) // 8 or len(indices) != count:
        return None
    return _below(indices, numel)


def _bits(like: Tensor) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=like.device)
