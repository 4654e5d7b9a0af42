"""Blocks drawn at random, the same on all ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tweed.compress.base import Spec, Turn
from tweed.compress.packet import Values
from tweed.errors import UsageError
from tweed.rng import permutation, splitmix64

if TYPE_CHECKING:
    from torch import Tensor


class Region(NamedTuple):
    """A part of a tensor, seen as `[rows, columns, rest]`, that begins at `offset` of the buffer."""

    offset: int
    shape: tuple[int, int, int]
    rows: tuple[int, int]
    columns: tuple[int, int]

    @property
    def numel(self) -> int:
        """The number of values in the region."""
        return (self.rows[1] - self.rows[0]) * (self.columns[1] - self.columns[0]) * self.shape[2]

    def of(self, buffer: Tensor) -> Tensor:
        """The region's values, as a view of `buffer`."""
        whole = buffer[self.offset : self.offset + math.prod(self.shape)].view(self.shape)
        return whole[slice(*self.rows), slice(*self.columns)]


@dataclass(frozen=True, slots=True)
class Regions:
    """Regions of a buffer, one after another."""

    regions: Sequence[Region]

    def of(self, buffer: Tensor) -> Tensor:
        """The regions' values: `[count]`, in memory of their own."""
        import torch

        parts = [region.of(buffer).reshape(-1) for region in self.regions]
        return torch.cat(parts) if parts else buffer.new_empty(0)

    def add(self, values: Tensor, out: Tensor) -> None:
        """Adds `values`, `[count]`, to the regions of `out`."""
        at = 0
        for region in self.regions:
            view = region.of(out)
            view.add_(values[at : at + region.numel].view(view.shape))
            at += region.numel


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of `length` values of a buffer, by number; the last of the buffer may be shorter."""

    length: int
    numbers: Tensor

    def of(self, buffer: Tensor) -> Tensor:
        """Their values: `[count]`, in memory of their own. A short block comes last."""
        import torch

        rows, tail, whole = self._seen(buffer)
        sent = rows.index_select(0, whole).view(-1)
        return sent if len(whole) == len(self.numbers) else torch.cat([sent, tail])

    def add(self, values: Tensor, out: Tensor) -> None:
        """Adds `values`, `[count]`, to them."""
        rows, tail, whole = self._seen(out)
        sent = len(whole) * self.length
        rows.index_add_(0, whole, values[:sent].view(-1, self.length))
        tail[: len(values) - sent].add_(values[sent:])

    def _seen(self, buffer: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Whole blocks as rows, what comes after them, and which of the rows are meant."""
        count = buffer.numel() // self.length
        rows = buffer[: count * self.length].view(count, self.length)
        return rows, buffer[count * self.length :], self.numbers[self.numbers < count]


@dataclass(frozen=True, slots=True)
class RandomBlocks:
    """Sends one number in `ratio`, in contiguous blocks drawn anew each turn (GRBS). All ranks draw the same
    blocks: no indices go out, and every number is drawn equally often.

    Args:
      ratio: values per value that is sent.
      tensors, columns: how `ratio` is split. A tensor takes part with probability `1 / tensors`; of its
        columns (second dimension) one part in `columns` is sent; of its rows (first dimension) one part in
        what is left of `ratio`.
      block: if given, shapes do not matter: the buffer is cut into blocks of so many values, and one block
        in `ratio` is sent.
      scaled: what is sent is multiplied by `ratio`, so that its mean is the input: for use without a memory.
      seed: of the draws.

    Raises: UsageError unless `tensors * columns` divides `ratio`.
    Cost: 4 bytes per value that is sent; an ordinary all-reduce. Time grows with what is sent only, apart
      from adding the error.
    Source: CSER (Xie et al., 2020), "globally-randomized blockwise sparsifier".
    """

    ratio: int
    tensors: int = 1
    columns: int = 1
    block: int | None = None
    scaled: bool = False
    seed: int = 0

    sums = True
    reply_codec = None

    def __post_init__(self) -> None:
        parts = self.tensors * self.columns
        if min(self.ratio, self.tensors, self.columns) < 1 or self.ratio % parts:
            raise UsageError(
                f"random blocks: ratio={self.ratio!r} is no multiple of tensors={self.tensors!r} times "
                f"columns={self.columns!r}; give whole numbers from 1 on"
            )
        if self.block is not None and (self.block < 1 or parts > 1):
            raise UsageError(
                f"random blocks: block={self.block!r} is to be 1 or more, without tensors or columns"
            )

    @property
    def unbiased(self) -> bool:
        """If scaled, or if all is sent."""
        return self.scaled or self.ratio == 1

    def start(self, spec: Spec) -> None:
        pass

    def encode(
        self, value: Tensor, state: None, turn: Turn, error: Tensor | None = None
    ) -> tuple[Values, None]:
        """Values that are sent unscaled are sent exactly."""
        import torch

        if error is not None:
            value = error.add_(value)
        draws = self._drawn(turn, value)
        sent = draws.of(value)
        if self.scaled:
            limit = torch.finfo(sent.dtype).max
            sent = sent.mul_(self.ratio).clamp_(-limit, limit)
        if error is not None:
            draws.add(-sent, error)
        return Values(sent, value.numel(), draws.add), None

    def _drawn(self, turn: Turn, value: Tensor) -> Regions | Blocks:
        key = turn.shared(self.seed)
        if self.block is None:
            return Regions([region for region in self._of_tensors(turn.spec, key) if region.numel])
        count = -(-turn.spec.numel // self.block)
        return Blocks(
            self.block, permutation(*_part(count, self.ratio, splitmix64(key)), count, key, value.device)
        )

    def _of_tensors(self, spec: Spec, key: int) -> list[Region]:
        regions, offset = [], 0
        for shape, size in zip(spec.shapes, spec.sizes, strict=True):
            key = splitmix64(key)
            if key % self.tensors == 0 and size:
                rows, columns = (*shape, 1, 1)[:2]
                seen = (rows, columns, size // (rows * columns))
                row_parts = self.ratio // (self.tensors * self.columns)
                across = (
                    _part(rows, row_parts, splitmix64(key ^ 1)),
                    _part(columns, self.columns, splitmix64(key ^ 2)),
                )
                regions.append(Region(offset, seen, *across))
            offset += size
        return regions

    def error_bound(self, spec: Spec) -> float:
        """What is not sent; scaled, the variance. Exact for every `v`."""
        return self.ratio - 1.0 if self.scaled else 1 - 1 / self.ratio

    def packet_bytes(self, spec: Spec) -> float:
        """Four per value that is sent, in the mean over draws."""
        return 4.0 * spec.numel / self.ratio


def _part(length: int, parts: int, draw: int) -> tuple[int, int]:
    """One of `parts` nearly equal parts of `length`."""
    number = draw % parts
    return length * number // parts, length * (number + 1) // parts
