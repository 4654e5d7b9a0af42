"""A network of layers that learn from targets, and the loss of trained feedback weights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from tweed.errors import UsageError
from tweed.workloads.target_propagation.feedback import Feedback, FixedFeedback
from tweed.workloads.target_propagation.layers import FirstTarget, TargetLayer


def target_network(
    sizes: Sequence[int],
    feedback: Feedback | None = None,
    beta: float = 0.04,
    normalise: bool = True,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """A network that learns by difference target propagation, in any training loop.

    Slices of it are stages of a pipeline: activations go up and distances to targets down as gradients do.

    Args:
      sizes: values of the input, of each layer's output, and of the last one's.
      feedback: weights that go down; None: fixed ones, of seed 0.
      beta: how far the first target is from the output, against the loss.
      normalise: over the batch, as the source's "-BN", also in evaluation: outputs depend on the batch.
      generator: of the weights that learn.

    Returns: takes `[batch, sizes[0]]`, gives `[batch, sizes[-1]]`.
    Raises: UsageError for fewer than two sizes.

    Example:
      >>> net = target_network([4, 8, 8, 3])
      >>> nn.functional.cross_entropy(net(torch.randn(16, 4)), torch.arange(16) % 3).backward()
      >>> [tuple(param.grad.shape) for param in net.parameters()]
      [(8, 4), (8, 8), (3, 8)]
    """
    if len(sizes) < 2:
        raise UsageError(f"a network of sizes {list(sizes)} has no layer: give that of the input, and others")
    made = feedback or FixedFeedback()
    last = len(sizes) - 2
    layers = [
        TargetLayer(
            inputs,
            outputs,
            made if layer else None,
            layer,
            is_last=layer == last,
            normalise=normalise,
            generator=generator,
        )
        for layer, (inputs, outputs) in enumerate(pairwise(sizes))
    ]
    return nn.Sequential(*layers, FirstTarget(beta))


def reconstruction(
    network: nn.Sequential, x: Tensor, noise: float = 0.01, generator: torch.Generator | None = None
) -> Tensor:
    """The loss of trained feedback weights: how far they bring a layer's output from its input.

    Its gradients go to these weights alone.

    Args:
      network: of `target_network` with `TrainedFeedback`.
      x: `[batch, sizes[0]]`.
      noise: standard deviation of what is added to each layer's input.

    Returns: a scalar, the sum over layers of `||g(f(q)) - q||^2`, mean over the batch.
    Source: Lee et al. 2015, equation 13.
    """
    loss, h = x.new_zeros(()), x
    for layer in network:
        if not isinstance(layer, TargetLayer):
            continue
        with torch.no_grad():
            q = h + noise * torch.randn(h.shape, generator=generator, device=h.device)
            out = layer.step(q)
            h = layer.step(h)
        if layer.feedback is not None:
            loss = loss + (layer.back(out) - q).square().sum(1).mean()
    return loss
