"""A server and its clients in one process: parallel, federated and sequential split learning. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tweed.workloads.split.client import SplitClient
from tweed.workloads.split.server import Replies, SplitServer

#: A client's inputs and labels, `[b, ...]` and `[b]`.
Batch = tuple[Tensor, Tensor]


def parallel_round(
    server: SplitServer,
    clients: Sequence[SplitClient],
    batches: Sequence[Batch],
    weights: Sequence[float] | None = None,
) -> Replies:
    """A batch of each client, and a step of all: PSL, or EPSL by the server's phi.

    Each client keeps lower layers of its own.
    """
    activations = [client.forward(x) for client, (x, _) in zip(clients, batches, strict=True)]
    replies = server.step(activations, [y for _, y in batches], weights)
    for client, own in zip(clients, replies.own, strict=True):
        client.backward(replies.common, own)
    return replies


def federated_round(
    server: SplitServer,
    clients: Sequence[SplitClient],
    batches: Sequence[Batch],
    weights: Sequence[float] | None = None,
) -> Replies:
    """As `parallel_round`; then the lower layers of all clients become their weighted mean (SplitFed)."""
    replies = parallel_round(server, clients, batches, weights)
    given = [1.0] * len(clients) if weights is None else list(weights)
    with torch.no_grad():
        for params in zip(*(client.lower.parameters() for client in clients), strict=True):
            mean = sum(weight * param for weight, param in zip(given, params, strict=True)) / sum(given)
            for param in params:
                param.copy_(mean)
    return replies


def sequential_round(
    server: SplitServer, clients: Sequence[SplitClient], batches: Sequence[Batch]
) -> list[Replies]:
    """One client after the other: each begins with the lower layers of the one before, a step each."""
    found = []
    for place, (client, batch) in enumerate(zip(clients, batches, strict=True)):
        client.lower.load_state_dict(clients[place - 1].lower.state_dict())
        found.append(parallel_round(server, [client], [batch]))
    return found
