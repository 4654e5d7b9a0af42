"""Split learning over the ranks of a process group: one rank is the server, the others are clients."""

from __future__ import annotations

import time
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.errors import TweedError, UsageError
from tweed.exchange.multicast import MulticastReceiver, MulticastSender
from tweed.torch.stages import PeerWire
from tweed.workloads.split.client import SplitClient
from tweed.workloads.split.messages import write
from tweed.workloads.split.server import Client, SplitServer

#: So long a client waits for what is sent by multicast when all else is there, before it asks for it.
_PATIENCE_S = 0.05


def serve_ranks(
    server: SplitServer,
    steps: int,
    group: dist.ProcessGroup | None = None,
    multicast: MulticastSender | None = None,
) -> None:
    """Serves all other ranks for so many steps.

    Args:
      group: of the backend "tweed"; None: the default group.
      multicast: what goes to all is sent by it, once. It is not sealed, as links are.

    Raises: what `server.handle` raises, which names the client by its rank, after all clients were told.
      PeerLost: a rank was lost within a step, which counts for nobody then.
    Cost: two messages up and two or three down per client and step; without multicast, what goes to all is
      sent to each by itself.
    """
    me = dist.get_rank(group)
    others = [rank for rank in range(dist.get_world_size(group)) if rank != me]
    wires: dict[Client, PeerWire] = {rank: _wire(rank, group) for rank in others}
    if not wires:
        raise UsageError("serve_ranks: a group of one rank has no client")
    for rank in wires:
        server.join(rank)
    end = server.steps + steps
    while server.clients:
        for rank in server.awaited:
            data = _bytes(wires[rank].receive())
            if server.steps >= end and not len(data):
                server.leave(rank)
                continue
            try:
                server.handle(rank, data)
            except TweedError as error:
                _tell(wires, error)
                raise
        _send(server, wires, multicast)
    for wire in wires.values():
        wire.flush()


def _send(server: SplitServer, wires: dict[Client, PeerWire], multicast: MulticastSender | None) -> None:
    for send in server.poll():
        if multicast is not None and len(send.to) > 1:
            multicast.send(server.steps, send.data)
        else:
            for rank in send.to:
                wires[rank].send(_tensor(send.data))


def _tell(wires: dict[Client, PeerWire], error: TweedError) -> None:
    message = _tensor(write("failed", 0, error=type(error).__name__, text=str(error)))
    for wire in wires.values():
        wire.send(message)
    for wire in wires.values():
        wire.flush()


def train_rank(
    client: SplitClient,
    batches: Iterable[tuple[Tensor, Tensor]],
    server: int = 0,
    group: dist.ProcessGroup | None = None,
    multicast: MulticastReceiver | None = None,
) -> list[float]:
    """A step of this rank for each batch.

    Args:
      batches: samples and labels; all clients give as many as `serve_ranks` has steps.
      server: the rank that serves.
      multicast: what goes to all comes by it; what does not come is asked for.

    Returns: this client's losses.
    Raises: what `client.start` and `client.handle` raise; PeerLost where the server is gone.
    """
    wire, losses = _wire(server, group), []
    for x, y in batches:
        wire.send(_tensor(client.start(x, y)))
        while not client.is_done:
            if client.lacks and multicast is not None:
                if _overheard(client, multicast):
                    break
                wire.send(_tensor(client.again()))
            if (answer := client.handle(_bytes(wire.receive()))) is not None:
                wire.send(_tensor(answer))
        losses.append(client.loss)
    wire.send(_tensor(b""))
    wire.flush()
    return losses


def _overheard(client: SplitClient, multicast: MulticastReceiver) -> bool:
    """Whether what came by multicast was all that was missing."""
    until = time.monotonic() + _PATIENCE_S
    while not client.is_done and (data := multicast.receive(until)) is not None:
        client.overhear(data)
    return client.is_done


def _wire(rank: int, group: dist.ProcessGroup | None) -> PeerWire:
    return PeerWire(rank, group, torch.device("cpu"))


def _tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def _bytes(message: Tensor) -> memoryview:
    return memoryview(message.numpy().data)
