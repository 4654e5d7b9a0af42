"""How a fixed point `r = map(r)` is found: by Euler's steps, or by Anderson's mixing. Pure.

A solver goes on until the residual, the largest `|map(r) - r|` of all values, is at most `tolerance`. A value
that is not finite, and steps that are not enough, are errors: other points would give wrong gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tweed.errors import DataError

Map = Callable[[Tensor], Tensor]


class Solver(Protocol):
    """Finds a fixed point of a map, from `start`, `[batch, ...]`.

    Raises: DataError if a value is not finite, or if there is no fixed point to its tolerance.
    """

    def __call__(self, map: Map, start: Tensor) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Euler:
    """Follows `dr/dt = map(r) - r` in steps of `rate` time constants: stable points attract it.

    Args:
      rate: of a step, above 0. 1 replaces the point by its image.
      steps: that may be taken at most.
      tolerance: what the residual may be.

    Example:
      >>> Euler(rate=0.5)(lambda r: 0.5 * r + 1, torch.zeros(1, 1)).round(decimals=3)
      tensor([[2.]])
    """

    rate: float = 0.1
    steps: int = 2000
    tolerance: float = 1e-5

    def __call__(self, map: Map, start: Tensor) -> Tensor:
        """A fixed point, `[batch, ...]`."""
        point, residual = start, torch.inf
        for _ in range(self.steps):
            move = map(point) - point
            residual = float(move.abs().max())
            _check(residual)
            if residual <= self.tolerance:
                return point
            point = point + self.rate * move
        raise _not_found("Euler", self.steps, residual, self.tolerance)


@dataclass(frozen=True, slots=True)
class Anderson:
    """Mixes the last images so that the residual would be least if the map were linear.

    It takes some 10 to 30 steps where Euler's method takes hundreds, and also finds points that are not
    stable.

    Args:
      memory: images that are mixed.
      steps: that may be taken at most.
      tolerance: what the residual may be.
      ridge: added to the system's diagonal, relative to its trace.

    Cost: a map, and `memory` products of a point with itself per step; `memory` points in memory.
    Source: Walker and Ni, "Anderson acceleration for fixed-point iterations", SIAM J. Numer. Anal. 2011.
    """

    memory: int = 6
    steps: int = 200
    tolerance: float = 1e-5
    ridge: float = 1e-8

    def __call__(self, map: Map, start: Tensor) -> Tensor:
        """A fixed point, `[batch, ...]`; each of the batch is mixed by itself."""
        points: list[Tensor] = []
        images: list[Tensor] = []
        point, residual = start, torch.inf
        for _ in range(self.steps):
            image = map(point)
            residual = float((image - point).abs().max())
            _check(residual)
            if residual <= self.tolerance:
                return image
            points, images = [*points, point][-self.memory :], [*images, image][-self.memory :]
            point = self._mixed(points, images)
        raise _not_found("Anderson", self.steps, residual, self.tolerance)

    def _mixed(self, points: list[Tensor], images: list[Tensor]) -> Tensor:
        """The images, by the weights with sum 1 whose mix of residuals is least."""
        stacked = torch.stack(images, 1).flatten(2)  # [batch, memory, values]
        moves = stacked - torch.stack(points, 1).flatten(2)
        products = moves @ moves.mT
        scale = (
            products.diagonal(dim1=1, dim2=2).mean(1)[:, None, None].clamp_min(torch.finfo(moves.dtype).tiny)
        )
        count = len(points)
        ridge = self.ridge * torch.eye(count, dtype=moves.dtype, device=moves.device)
        found = torch.linalg.solve(products / scale + ridge, moves.new_ones(len(moves), count))
        weights = found / found.sum(1, keepdim=True)
        mixed: Tensor = weights[:, None] @ stacked
        return mixed.view_as(images[0])


def _check(residual: float) -> None:
    if not residual < torch.inf:
        raise DataError(
            "an activation is not finite on the way to a fixed point: the map grows without bound. Check the "
            "input, and the eigenvalues of the weights, or take smaller steps of the optimizer"
        )


def _not_found(solver: str, steps: int, residual: float, tolerance: float) -> DataError:
    return DataError(
        f"{solver} found no fixed point in {steps} steps: the residual is {residual:.2g} where {tolerance:g} "
        "is asked for. The map may have none that is stable: give more steps, or smaller weights"
    )
