"""Split learning whose clients share one set of lower layers: federated averages of them, or turns. Local.

federated_average(clients)                  behind each step or some: SFL
sequential_step(server, clients, batches)   a client after the other, each with the layers of the one before
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tweed.errors import ShapeMismatch
from tweed.workloads.split.client import SplitClient
from tweed.workloads.split.local import split_step
from tweed.workloads.split.server import SplitServer


def federated_average(clients: Sequence[SplitClient], weights: Sequence[float] | None = None) -> None:
    """Gives all clients the weighted average of their lower layers. Optimizers keep their states.

    Args:
      weights: of clients, as the sizes of their data; None: all the same.

    Raises: ShapeMismatch for clients whose layers differ.
    Source: SplitFed, Thapa et al., AAAI 2022, arXiv 2004.12088; SFL there is this behind each epoch.
    """
    shares = torch.tensor([1.0] * len(clients) if weights is None else list(weights), dtype=torch.float64)
    shares /= shares.sum()
    states = [client.lower.state_dict() for client in clients]
    for number, state in enumerate(states[1:], 1):
        if {name: one.shape for name, one in state.items()} != {
            name: one.shape for name, one in states[0].items()
        }:
            raise ShapeMismatch(
                f"layers of client {number} are others than those of client 0: no average of them"
            )
    with torch.no_grad():
        for name, first in states[0].items():
            if first.is_floating_point():
                pairs = zip(shares.tolist(), states, strict=True)
                average = torch.stack([share * state[name] for share, state in pairs]).sum(0)
                for state in states:
                    state[name].copy_(average)


def _shapes(state: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: one.shape for name, one in state.items()}


def sequential_step(
    server: SplitServer, clients: Sequence[SplitClient], batches: Sequence[tuple[Tensor, Tensor]]
) -> float:
    """One step of each client, one after the other; each begins with the layers of the one before.

    Returns: the mean loss.
    Source: Gupta and Raskar, "Distributed learning of deep neural network over multiple agents", 2018.
    """
    losses, before = [], clients[-1]
    for client, batch in zip(clients, batches, strict=True):
        if client is not before:
            client.lower.load_state_dict(before.lower.state_dict())
        losses.append(split_step(server, [client], [batch]))
        before = client
    return sum(losses) / len(losses)
