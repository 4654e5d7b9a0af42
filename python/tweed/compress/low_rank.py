"""Each matrix as a product of two thin ones (PowerSGD)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tweed.compress.base import Spec, Turn
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST = 3.4e38  # a little less than float32 holds


class Part(NamedTuple):
    """A tensor in the buffer, seen as a matrix; rank 0: it is sent in full."""

    offset: int
    rows: int
    columns: int
    rank: int

    def of(self, buffer: Tensor) -> Tensor:
        """The view of it: `[rows, columns]`."""
        return buffer[self.offset : self.offset + self.rows * self.columns].view(self.rows, self.columns)


@dataclass(frozen=True, slots=True)
class Warm:
    """State of `LowRank`: `[count]`, right factors of all matrices one after another; None before the first
    turn. Equal on all ranks."""

    right: Tensor | None = None


@dataclass(frozen=True, slots=True)
class LowRank:
    """Sends each matrix `M` as `P Pᵀ M`, where `P` is an orthonormal basis of the mean of `M Q` over ranks,
    and `Q` the right factor of the turn before: a power iteration that goes on from turn to turn.

    The mean over ranks of `P Pᵀ M` is `P` times the mean of `Pᵀ M`, and what is left of a rank's own `M` is
    `M - P Pᵀ M`. A tensor of several dimensions is a matrix of its first by all others. Vectors, and matrices
    that factors would not make smaller, are sent in full.

    Args:
      rank: columns of the factors.
      warm: begin with the factors of the turn before; otherwise with draws, drawn anew each turn.
      seed: of the draws.

    Values so large that a product could overflow are cut, and the rest is left. Ranks on processors that
    round differently may come to differ in the last bits, as with torch's own PowerSGD.
    Raises: UsageError unless `rank` is 1 or more.
    Cost: `4 rank (rows + columns)` bytes per matrix, in two all-reduces one after the other; four products
      with `rank` columns and two QR decompositions.
    Source: Vogels, Karimireddy, Jaggi, "PowerSGD", arXiv 1905.13727, 2019.
    """

    rank: int = 2
    warm: bool = True
    seed: int = 0

    unbiased = False
    sums = True
    reply_codec = None

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise UsageError(f"low rank: rank={self.rank!r} is to be 1 or more columns")

    def parts(self, spec: Spec) -> tuple[list[Part], list[Part]]:
        """The tensors of the buffer: those that are sent as factors, and those that are sent in full."""
        parts, offset = [], 0
        for shape, size in zip(spec.shapes, spec.sizes, strict=True):
            rows = shape[0] if len(shape) > 1 and size else 1
            columns = size // rows
            smaller = self.rank * (rows + columns) < size
            parts.append(Part(offset, rows, columns, self.rank if smaller else 0))
            offset += size
        return [part for part in parts if part.rank], [part for part in parts if not part.rank]

    def start(self, spec: Spec) -> Warm:
        """Factors are drawn at the first turn."""
        return Warm()

    def rounds(
        self, value: Tensor, state: Warm, turn: Turn, out: Tensor, error: Tensor | None = None
    ) -> Generator[Tensor, Tensor, Warm]:
        matrices, whole = self.parts(turn.spec)
        if error is not None:
            error.copy_(value.add_(error))
        limit = _LARGEST / (2 * turn.size * max(1, value.numel()) ** 0.5)
        value.clamp_(-limit, limit)
        before = _bases(self._right(state, turn, matrices, value), _shapes(matrices, "columns"))
        lefts = [part.of(value) @ basis for part, basis in zip(matrices, before, strict=True)]
        mean = yield _row([*lefts, *(part.of(value) for part in whole)], value)
        bases = _bases(mean, _shapes(matrices, "rows"))
        at = sum(left.numel() for left in lefts)
        for part in whole:
            size = part.rows * part.columns
            part.of(out).view(-1).copy_(mean[at : at + size])
            at += size
            if error is not None:
                part.of(error).sub_(part.of(value))
        rights = _row([part.of(value).T @ basis for part, basis in zip(matrices, bases, strict=True)], value)
        if error is not None:
            _add_products(matrices, bases, -rights, error, keep=True)
        mean = yield rights
        _add_products(matrices, bases, mean, out, keep=False)
        return Warm(mean.clone())

    def _right(self, state: Warm, turn: Turn, matrices: Sequence[Part], like: Tensor) -> Tensor:
        import torch

        from tweed.rng import uniforms

        count = sum(part.columns * part.rank for part in matrices)
        draws = uniforms(turn.shared(self.seed), 0, count, like.device).sub_(0.5)
        if not self.warm or state.right is None:
            return draws
        right = state.right.to(like.device)
        # A factor of zeros, of a matrix that was zero, would lead nowhere: draws lead everywhere.
        return torch.where(right == 0, draws * 1e-12, right)

    def error_bound(self, spec: Spec) -> float:
        """The bound of the first turn, where singular values are equal: all but the share of directions."""
        matrices, _ = self.parts(spec)
        return max((1 - part.rank / min(part.rows, part.columns) for part in matrices), default=0.0)

    def packet_bytes(self, spec: Spec) -> float:
        """Four per value of both factors, and of what is sent in full."""
        matrices, whole = self.parts(spec)
        factors = sum(part.rank * (part.rows + part.columns) for part in matrices)
        return 4.0 * (factors + sum(part.rows * part.columns for part in whole))


def _row(parts: Sequence[Tensor], like: Tensor) -> Tensor:
    import torch

    return torch.cat([like.new_empty(0), *(part.reshape(-1) for part in parts)])


def _bases(factors: Tensor, shapes: Sequence[tuple[int, int]]) -> list[Tensor]:
    """An orthonormal basis of each of the factors that lie one after another."""
    import torch

    bases, at = [], 0
    for rows, rank in shapes:
        bases.append(torch.linalg.qr(factors[at : at + rows * rank].view(rows, rank)).Q)
        at += rows * rank
    return bases


def _shapes(matrices: Sequence[Part], side: str) -> list[tuple[int, int]]:
    return [(getattr(part, side), part.rank) for part in matrices]


def _add_products(
    matrices: Sequence[Part], bases: Sequence[Tensor], rights: Tensor, out: Tensor, keep: bool
) -> None:
    """Adds to each matrix of `out` the product of its factors, or puts it there."""
    at = 0
    for part, basis in zip(matrices, bases, strict=True):
        size = part.columns * part.rank
        right = rights[at : at + size].view(part.columns, part.rank)
        part.of(out).addmm_(basis, right.T, beta=int(keep))
        at += size
