"""Two stages of one model on two ranks, with thresholds on what crosses between them."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.errors import UsageError
from tweed.exchange.p2p import PeerMessages
from tweed.exchange.stage_link import StageLink
from tweed.exchange.stages import Cut


def stage_link(
    peer: int, cut: Cut | None = None, group: dist.ProcessGroup | None = None, device: str = "cpu"
) -> StageLink:
    """This rank's end of a cut through a model, whose other end is at rank `peer`.

    The first stage sends activations, and calls `backward` on what that returns; the second stage receives
    them as if it had computed them:

        link = tweed.torch.stage_link(peer=1)              # rank 0
        link.send(first(x)).backward()

        link = tweed.torch.stage_link(peer=0)              # rank 1
        loss(second(link.receive()), y).backward()

    Args:
      peer: rank of the other end in `group`.
      cut: how they cross, the same at both ends; by default 5 % of the activations in 8 bits, and the
        gradients of these in 8 bits.
      group: of the backend "tweed"; None: the default group.
      device: where messages are received.

    Returns: see `StageLink`: `send`, `receive`, and what has been sent.
    Raises: UsageError for a rank that is no other of the group. Later, PeerLost and DeadlineExceeded where
      the other end is gone or late.
    Cost: two messages per crossing, the first of 8 bytes; at the default some 35 times fewer bytes than
      float32 takes.
    Source: DCT, arXiv 2010.08899, 2021; see `tweed.systems.dct`.
    """
    size = dist.get_world_size(group)
    if not 0 <= peer < size or peer == dist.get_rank(group):
        raise UsageError(f"stage_link: peer={peer} is no other rank of a group of {size}")
    return StageLink(PeerWire(peer, group, torch.device(device)), cut or Cut())


class PeerWire:
    """Messages of any length between two ranks: the length, then the bytes.

    Args:
      peer: rank of the other end in `group`.
      device: where messages are received.
    """

    def __init__(self, peer: int, group: dist.ProcessGroup | None, device: torch.device) -> None:
        self._peer, self._device = peer, device
        self._messages = PeerMessages(group, _wait)

    def send(self, message: Tensor) -> None:
        """Sends a message, once the message before has left."""
        self._messages.flush()
        self._messages.send(torch.tensor([len(message)], device=self._device), self._peer)
        self._messages.send(message, self._peer)

    def receive(self) -> Tensor:
        """Waits for the next message, and returns it."""
        length = self._next(torch.empty(1, dtype=torch.int64, device=self._device))
        return self._next(torch.empty(int(length), dtype=torch.uint8, device=self._device))

    def flush(self) -> None:
        """Waits until all that was sent has left."""
        self._messages.flush()

    def _next(self, tensor: Tensor) -> Tensor:
        self._messages.expect("message", tensor, self._peer)
        self._messages.next(float("inf"))
        return tensor


def _wait(work: dist.Work) -> None:
    work.wait()
