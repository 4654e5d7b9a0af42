"""What the server of split learning does with the batches of its clients. Pure: no link, no optimizer.

rows         client 1: 0 1 2 3    client 2: 0 1 2 3         m = 2 of b = 4 are aggregated
forward      all rows give outputs, and those the gradients of the loss
backward     averages of rows 0 and 1, then 2 3 of client 1 and 2 3 of client 2: m + C (b - m) rows
back         the gradient of m rows to all clients, that of b - m rows to each
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tweed.errors import UsageError

#: So much too many rows a product of a share and a size may be for its rounding alone.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one step that were computed at the server, and that cross the link down.

    Attributes:
      forward, backward: at the server.
      broadcast: to all clients at once.
      unicast: to single clients, in sum.
    """

    forward: int
    backward: int
    broadcast: int
    unicast: int


@dataclass(frozen=True, slots=True)
class CutGradients:
    """Gradients of activations at the cut, of each client's own mean loss.

    Attributes:
      broadcast: `[m, ...]`, of the first m rows of every client.
      unicast: by client, `[b - m, ...]`, of its other rows.
    """

    broadcast: Tensor
    unicast: Sequence[Tensor]


def aggregated_rows(phi: float, sizes: Sequence[int]) -> int:
    """How many rows of each client are aggregated: m = ceil(phi b), b the smallest of the batches' `sizes`.

    Raises: UsageError for a share that is not from 0 to 1.
    Source: arXiv 2303.15991, section III.

    Example:
      >>> aggregated_rows(0.5, [64, 7]), aggregated_rows(0.1, [30])
      (4, 3)
    """
    if not 0 <= phi <= 1:
        raise UsageError(f"phi={phi!r} is no share of a batch: give one from 0 to 1")
    return math.ceil(phi * min(sizes) - _ROUNDING)


class ServerPass:
    """One forward and one backward pass through the upper layers, for several clients.

    Args:
      upper: the layers of the server; a layer that draws, as Dropout, draws anew for averages.
      activations: by client, `[b_i, ...]`; rows of averages come from those with the same place.
      weights: by client, their sum is 1.
      aggregated: m, at most the smallest b_i.

    Attributes:
      outputs: by client, `[b_i, ...]`, from its own activations.
      rows: what is computed and sent back.

    Averages of gradients are propagated at the averages of activations at the cut: those are m rows more
    to compute forwards. With m = 0 this is parallel split learning, with one client plain back-propagation,
    both to the last bit.

    Cost: `sum(b_i) + m` rows forwards and `m + sum(b_i - m)` rows backwards.
    Source: EPSL, arXiv 2303.15991, section III.

    Example:
      >>> upper = nn.Linear(2, 1, bias=False)
      >>> step = ServerPass(upper, [torch.ones(4, 2), torch.zeros(4, 2)], [0.5, 0.5], aggregated=3)
      >>> found = step.backward([torch.ones(4, 1), torch.ones(4, 1)])
      >>> step.rows
      Rows(forward=11, backward=5, broadcast=3, unicast=2)
    """

    def __init__(
        self, upper: nn.Module, activations: Sequence[Tensor], weights: Sequence[float], aggregated: int
    ) -> None:
        self._weights, self._aggregated = list(weights), aggregated
        m = aggregated
        self._rests = [len(one) - m for one in activations]
        heads = [one[:m] for one in activations]
        self._input = torch.cat([_average(heads, weights), *(one[m:] for one in activations)]).detach()
        self._output: Tensor = upper(self._input.requires_grad_())
        averaged, *rest = self._output.detach().split([m, *self._rests])
        firsts: Sequence[Tensor] = [averaged] * len(heads)
        if m and len(heads) > 1:
            with torch.no_grad():
                firsts = upper(torch.cat(heads)).split(m)
        self.outputs = [torch.cat(pair) for pair in zip(firsts, rest, strict=True)]
        forward = sum(self._rests) + m + (m * len(heads) if len(heads) > 1 else 0)
        self.rows = Rows(forward, len(self._input), m, sum(self._rests))

    def backward(self, gradients: Sequence[Tensor]) -> CutGradients:
        """Adds the gradient of the weighted loss to `.grad` of the upper layers.

        Args:
          gradients: by client, `[b_i, ...]`, of its own mean loss by its outputs.
        """
        m = self._aggregated
        whole = [_average([one[:m] for one in gradients], self._weights)]
        whole += [weight * one[m:] for weight, one in zip(self._weights, gradients, strict=True)]
        self._output.backward(torch.cat(whole))  # type: ignore[no-untyped-call]
        assert self._input.grad is not None  # it is a leaf of the output
        broadcast, *unicast = torch.split(self._input.grad, [m, *self._rests])
        own = [one / weight for weight, one in zip(self._weights, unicast, strict=True)]
        return CutGradients(broadcast, own)


def _average(values: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    total = weights[0] * values[0]
    for weight, value in zip(weights[1:], values[1:], strict=True):
        total = total + weight * value
    return total
