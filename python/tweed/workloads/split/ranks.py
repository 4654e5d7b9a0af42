"""Split learning over a process group: the server on one rank, a client on each other one.

    client                                          server
    activations, labels and weight            ->
                                              <-    where the client keeps its labels: outputs
    gradients of its loss by these            ->
                                              <-    gradients of the first m rows, one broadcast
                                              <-    gradients of its other rows

The broadcast goes from rank to rank as the group's schedule has it, so that the server's link carries it
about once, however many clients there are.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.compress import Identity, Spec, Turn, unpack
from tweed.errors import UsageError
from tweed.exchange.stages import Cut, CutState
from tweed.torch.stages import PeerWire
from tweed.workloads.split.client import SplitClient
from tweed.workloads.split.rounds import Batch
from tweed.workloads.split.server import Loss, Replies, SplitServer

#: As they are, in both directions.
PLAIN = Cut(Identity(), Identity())


class _Server:
    """The server's links to its clients, one after the other by rank."""

    def __init__(self, cut: Cut, group: dist.ProcessGroup | None, rank: int) -> None:
        size = dist.get_world_size(group)
        self.peers = [peer for peer in range(size) if peer != rank]
        if not self.peers:
            raise UsageError("split learning needs a client: start two ranks or more")
        self.cut, self.group, self.rank = cut, group, rank
        self.wires = {peer: PeerWire(peer, group, torch.device("cpu")) for peer in self.peers}
        self.states = {peer: cut.start_gradients() for peer in [rank, *self.peers]}

    def receive(self, server: SplitServer) -> tuple[list[Tensor], list[Tensor], list[float]]:
        """Activations, labels and weights of all clients; of who keeps labels, gradients by the outputs."""
        messages = [(wire.receive(), wire.receive(), wire.receive()) for wire in self.wires.values()]
        activations = [self.cut.decode(message)[0] for message, _, _ in messages]
        labels = [label.view(torch.int64) for _, label, _ in messages]
        weights = [float(weight.view(torch.float64)) for _, _, weight in messages]
        for place, wire in enumerate(self.wires.values()):
            if not len(labels[place]):
                (outputs,) = server.outputs([activations[place]])
                wire.send(outputs.contiguous().view(torch.uint8).flatten())
                labels[place] = wire.receive().view(torch.float32).view(outputs.shape)
        return activations, labels, weights

    def answer(self, replies: Replies) -> None:
        """Gradients for all clients, and each one's own."""
        _broadcast(len(replies.common), self._packed(replies.common, self.rank), self.rank, self.group)
        for peer, own in zip(self.peers, replies.own, strict=True):
            self.wires[peer].send(self._packed(own, peer))

    def _packed(self, gradient: Tensor, whose: int) -> Tensor:
        flat = gradient.detach().reshape(-1).float().contiguous()
        if not flat.numel():
            return torch.empty(0, dtype=torch.uint8)
        state = self.states[whose]
        spec = Spec(((len(flat),),))
        packet, codec = self.cut.gradients.encode(flat, state.codec, Turn(spec, state.crossings))
        self.states[whose] = CutState(codec, state.crossings + 1)
        return packet.pack()


def serve(
    server: SplitServer, steps: int, cut: Cut = PLAIN, group: dist.ProcessGroup | None = None
) -> list[float]:
    """Takes so many steps with the clients that `join`, on one rank of a group.

    Args:
      cut: in which codecs activations and gradients cross; the same at all clients.
      group: of the backend "tweed"; None: the default group. Each of its other ranks is a client.

    Returns: the losses.
    Raises: UsageError without a client, and as `SplitServer.step`; PeerLost and DeadlineExceeded for a client
      that is gone or late, with its rank.
    """
    links, losses = _Server(cut, group, dist.get_rank(group)), []
    for _ in range(steps):
        replies = server.step(*links.receive(server))
        links.answer(replies)
        losses.append(replies.loss)
    return losses


def join(
    client: SplitClient,
    batches: list[Batch],
    server: int = 0,
    weight: float = 1.0,
    cut: Cut = PLAIN,
    group: dist.ProcessGroup | None = None,
    loss: Loss | None = None,
) -> None:
    """Takes a step of a client with each of its batches.

    Args:
      server: the rank that serves.
      loss: a mean over a batch, of outputs and labels: then labels stay here. None: the server has them.
      weight: of this client, such as how many samples it has.
      cut, group: as of `serve`.

    Raises: PeerLost and DeadlineExceeded where the server is gone or late.
    """
    wire, state = PeerWire(server, group, torch.device("cpu")), cut.start_activations()
    for x, labels in batches:
        activations = client.forward(x)
        message, _, state = cut.encode(activations, state)
        wire.send(message)
        sent = labels.to(torch.int64) if loss is None else labels.new_empty(0, dtype=torch.int64)
        wire.send(sent.view(torch.uint8))
        wire.send(torch.tensor([weight], dtype=torch.float64).view(torch.uint8))
        if loss is not None:
            outputs = wire.receive().view(torch.float32).view(len(x), -1).requires_grad_()
            (error,) = torch.autograd.grad(loss(outputs, labels), outputs)
            wire.send(error.contiguous().view(torch.uint8).flatten())
        m, common = _broadcast(0, None, server, group)
        own = wire.receive()
        client.backward(_unpacked(common, activations[:m]), _unpacked(own, activations[m:]))


def _broadcast(
    m: int, message: Tensor | None, root: int, group: dist.ProcessGroup | None
) -> tuple[int, Tensor]:
    """The number and the message of the rank `root`, `[bytes]` uint8, at all ranks."""
    head = torch.tensor([m, 0 if message is None else len(message)])
    dist.broadcast(head, group_src=root, group=group)
    whole = torch.empty(int(head[1]), dtype=torch.uint8) if message is None else message
    if len(whole):
        dist.broadcast(whole, group_src=root, group=group)
    return int(head[0]), whole


def _unpacked(message: Tensor, like: Tensor) -> Tensor:
    """A gradient of activations like these; empty where none are."""
    values = torch.zeros(like.numel())
    packet = unpack(message, like.numel())
    if packet is not None:
        packet.add_to(values)
    return values.view(like.shape)
