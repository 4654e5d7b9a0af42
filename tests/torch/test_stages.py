"""Two stages of a model on two ranks, over tweed's send and receive."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import tweed
from tweed.compress import Identity, Threshold
from tweed.errors import UsageError
from tweed.exchange.stage_link import StageLink
from tweed.simulate.stages import stage_links
from tweed.testbed import run_ranks
from tweed.torch import Cut, stage_link

CUTS = {"default": Cut(), "as published": Cut(Threshold(0.1, 3), Identity(), False)}
BATCHES = 6


def stages() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 64), nn.ReLU()), nn.Linear(64, 3)


def batch(number: int) -> Tensor:
    return torch.randn(16, 10, generator=torch.Generator().manual_seed(number))


class Stage:
    """One of the two, with its end of the cut."""

    def __init__(self, number: int, link: StageLink) -> None:
        self.model, self.link = stages()[number], link
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)

    def forward(self, number: int) -> Tensor:
        """What its backward pass begins with."""
        if isinstance(self.model, nn.Linear):
            y: Tensor = self.model(self.link.receive()).square().mean()
            return y
        return self.link.send(self.model(batch(number)))

    def step(self, loss: Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()

    @property
    def outcome(self) -> tuple[list[list[float]], int]:
        return [param.flatten().tolist() for param in self.model.parameters()], self.link.bytes_sent


def simulated(name: str) -> list[tuple[list[list[float]], int]]:
    first, second = (Stage(number, link) for number, link in enumerate(stage_links(CUTS[name])))
    for number in range(BATCHES):
        zero, loss = first.forward(number), second.forward(number)
        second.step(loss)
        first.step(zero)
    return [first.outcome, second.outcome]


def live(rank: int, size: int, name: str) -> tuple[list[list[float]], int]:
    torch.set_num_threads(1)
    stage = Stage(rank, stage_link(1 - rank, CUTS[name]))
    for number in range(BATCHES):
        stage.step(stage.forward(number))
    dist.barrier()
    return stage.outcome


@pytest.mark.parametrize("name", CUTS)
def test_two_ranks_train_as_two_virtual_stages_do(name: str) -> None:
    assert run_ranks(live, 2, name, backend="tweed") == simulated(name)


def lonely(rank: int, size: int) -> str:
    if rank == 1:
        return ""
    with pytest.raises(UsageError, match="no other rank"):
        stage_link(0)
    with pytest.raises((tweed.PeerLost, tweed.DeadlineExceeded)) as lost:
        stage_link(1).receive()
    return str(lost.value)


def test_a_stage_that_is_gone_is_named() -> None:
    words, _ = run_ranks(lonely, 2, backend="tweed")
    assert "rank 1" in words
