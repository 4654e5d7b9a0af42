"""A server of split learning and its clients in one process: the code that runs live, without links."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from tweed.workloads.split.client import SplitClient
from tweed.workloads.split.server import SplitServer


def split_step(
    server: SplitServer, clients: Sequence[SplitClient], batches: Sequence[tuple[Tensor, Tensor]]
) -> float:
    """One step of all clients, each with its batch of samples and labels.

    Returns: the loss, weighted over clients.
    Raises: what server and clients raise.

    Example:
      >>> import torch
      >>> from torch import nn
      >>> lower, upper = nn.Linear(4, 3), nn.Linear(3, 2)
      >>> client = SplitClient(lower, torch.optim.SGD(lower.parameters(), 0.1))
      >>> server = SplitServer(upper, torch.optim.SGD(upper.parameters(), 0.1), nn.functional.cross_entropy)
      >>> loss = split_step(server, [client], [(torch.ones(2, 4), torch.tensor([0, 1]))])
      >>> server.steps, client.steps
      (1, 1)
    """
    for number in range(len(clients)):
        server.join(number)
    for number, (client, batch) in enumerate(zip(clients, batches, strict=True)):
        server.handle(number, client.start(*batch))
    while sends := server.poll():
        for send in sends:
            for number, client in enumerate(clients):
                if number in send.to and (answer := client.handle(send.data)) is not None:
                    server.handle(number, answer)
    return server.loss
