"""Split learning over the ranks of a process group: one rank is the server, the others are clients."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.errors import TweedError, UsageError
from tweed.torch.stages import PeerWire
from tweed.workloads.split.client import SplitClient
from tweed.workloads.split.messages import write
from tweed.workloads.split.server import Client, SplitServer


def serve_ranks(server: SplitServer, steps: int, group: dist.ProcessGroup | None = None) -> None:
    """Serves all other ranks for so many steps.

    Args:
      group: of the backend "tweed"; None: the default group.

    Raises: what `server.handle` raises, which names the client by its rank, after all clients were told.
      PeerLost: a rank was lost within a step, which counts for nobody then.
    Cost: two messages up and two or three down per client and step; what is broadcast goes to each by itself.
    """
    me = dist.get_rank(group)
    others = [rank for rank in range(dist.get_world_size(group)) if rank != me]
    wires: dict[Client, PeerWire] = {rank: _wire(rank, group) for rank in others}
    if not wires:
        raise UsageError("serve_ranks: a group of one rank has no client")
    for rank in wires:
        server.join(rank)
    end = server.steps + steps
    while server.steps < end:
        try:
            for rank in server.awaited:
                server.handle(rank, _bytes(wires[rank].receive()))
        except TweedError as error:
            for wire in wires.values():
                wire.send(_tensor(write("failed", server.steps, error=type(error).__name__, text=str(error))))
                wire.flush()
            raise
        for send in server.poll():
            for rank in send.to:
                wires[rank].send(_tensor(send.data))
    for wire in wires.values():
        wire.flush()


def train_rank(
    client: SplitClient,
    batches: Iterable[tuple[Tensor, Tensor]],
    server: int = 0,
    group: dist.ProcessGroup | None = None,
) -> list[float]:
    """A step of this rank for each batch.

    Args:
      batches: samples and labels; all clients give as many as `serve_ranks` has steps.
      server: the rank that serves.

    Returns: this client's losses.
    Raises: what `client.start` and `client.handle` raise; PeerLost where the server is gone.
    """
    wire, losses = _wire(server, group), []
    for x, y in batches:
        wire.send(_tensor(client.start(x, y)))
        while not client.is_done:
            if (answer := client.handle(_bytes(wire.receive()))) is not None:
                wire.send(_tensor(answer))
        losses.append(client.loss)
    wire.flush()
    return losses


def _wire(rank: int, group: dist.ProcessGroup | None) -> PeerWire:
    return PeerWire(rank, group, torch.device("cpu"))


def _tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _bytes(message: Tensor) -> memoryview:
    return memoryview(message.numpy().data)
