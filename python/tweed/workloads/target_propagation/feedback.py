"""Weights that bring a layer's target down to the layer below: fixed and drawn from a seed, or trained."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import xxhash
from torch import Tensor, nn

from tweed.errors import DataError, UsageError


class Feedback(Protocol):
    """Makes the weights of one layer."""

    def make(self, above: int, below: int, layer: int) -> nn.Module:
        """A module that takes no input and gives the weights, `[below, above]`; `layer` counts from 0."""
        ...


@dataclass(frozen=True, slots=True)
class FixedFeedback:
    """Weights of a uniform distribution, drawn once from a seed, the same in every process. Never trained.

    They are no parameters, and no buffers: nothing sends or stores them. A digest of 8 bytes is a buffer,
    which all ranks have from rank 0, and checkpoints hold: who has other weights says so in its next forward
    pass.

    Args:
      seed: of all layers.
      scale: weights lie between it and its negative.
      density: the share of weights that are not zero.

    Raises: UsageError for a scale that is not above 0, or a density that is not above 0 and at most 1.
    """

    seed: int = 0
    scale: float = 1e-3
    density: float = 1.0

    def __post_init__(self) -> None:
        if not (self.scale > 0 and 0 < self.density <= 1):
            raise UsageError(f"{self} cannot be: give a scale above 0 and a density above 0 and at most 1")

    def make(self, above: int, below: int, layer: int) -> nn.Module:
        """The weights of a layer."""
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + layer)
        drawn = torch.rand(below, above, generator=generator) * 2 - 1
        kept = torch.rand(below, above, generator=generator) < self.density
        return _Fixed(drawn * self.scale * kept, self.seed)


class _Fixed(nn.Module):
    """Weights that no list of parameters or buffers has, and their digest, which is a buffer."""

    digest: Tensor

    def __init__(self, weight: Tensor, seed: int) -> None:
        super().__init__()
        self._weight, self._seed = weight, seed
        self._own = xxhash.xxh3_64_intdigest(weight.numpy().tobytes()) >> 1
        self.register_buffer("digest", torch.tensor(self._own))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._weight = fn(self._weight)
        return self

    def forward(self) -> Tensor:
        """The weights. Raises: DataError if rank 0, or the checkpoint, has others."""
        if int(self.digest) != self._own:
            raise DataError(
                f"the feedback weights of seed {self._seed} are not those of rank 0, or of the checkpoint: "
                "give all ranks the same seed, scale and density, and the same version of torch"
            )
        return self._weight


@dataclass(frozen=True, slots=True)
class TrainedFeedback:
    """Weights that learn to reconstruct a layer's input, as in DTP; `reconstruction` is their loss.

    Args:
      generator: of the first ones; None: torch's.
    """

    generator: torch.Generator | None = None

    def make(self, above: int, below: int, layer: int) -> nn.Module:
        """The weights of a layer."""
        return _Trained(above, below, self.generator)


class _Trained(nn.Module):
    def __init__(self, above: int, below: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(below, above))
        nn.init.kaiming_uniform_(self.weight, math.sqrt(5), generator=generator)

    def forward(self) -> Tensor:
        """The weights, as trained so far."""
        return self.weight
