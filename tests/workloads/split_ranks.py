"""What ranks run in tests of split training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tweed.exchange.multicast import MulticastReceiver, MulticastSender
from tweed.testbed import sent_bytes
from tweed.testbed.names import address
from tweed.workloads.split import SplitClient, SplitServer
from tweed.workloads.split.ranks import serve_ranks, train_rank


def lower(seed: int, width: int = 6) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, width), nn.Tanh())


def upper() -> nn.Module:
    torch.manual_seed(99)
    return nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3))


def batches(seed: int, rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 5, generator=generator)
    return x, x.abs().argmax(1) % 3


def split_rank(
    rank: int, size: int, phi: float, at_client: bool, steps: int, wrong: int = -1
) -> list[list[float]]:
    """Rank 0 serves; `wrong` is a rank with another cut."""
    loss = nn.functional.cross_entropy
    module = upper() if rank == 0 else lower(rank - 1, 8 if rank == wrong else 6)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    if rank == 0:
        serve_ranks(SplitServer(module, optimizer, None if at_client else loss, phi), steps)
    else:
        client = SplitClient(module, optimizer, loss=loss if at_client else None)
        train_rank(client, [batches(step + 100 * (rank - 1), 4) for step in range(steps)])
    return [param.tolist() for param in module.parameters()]


def multicast_rank(rank: int, size: int, is_multicast: bool) -> tuple[float, int]:
    """Three steps at phi = 1 with a cut of 256 values. Returns the last loss, and bytes that were sent."""
    torch.manual_seed(rank)
    module = nn.Linear(256, 3) if rank == 0 else nn.Linear(5, 256)
    optimizer, before = torch.optim.SGD(module.parameters(), lr=0.01), sent_bytes() or 0
    group = ("239.7.7.2", 7072)
    if rank == 0:
        server = SplitServer(module, optimizer, nn.functional.cross_entropy, phi=1.0)
        serve_ranks(server, 3, multicast=MulticastSender(group, address(0)) if is_multicast else None)
        loss = server.loss
    else:
        client = SplitClient(module, optimizer)
        receiver = MulticastReceiver(group, address(rank)) if is_multicast else None
        loss = train_rank(client, [batches(step + 10 * rank, 16) for step in range(3)], multicast=receiver)[
            -1
        ]
    return loss, (sent_bytes() or 0) - before
