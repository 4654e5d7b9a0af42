"""Messages of any length between real ranks: what is sent comes whole, by as few operations as promised."""

from __future__ import annotations

from contextlib import ExitStack
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import tweed
from tests.hooks.nets import on_each_backend
from tweed.aggregate import Median
from tweed.cadence import EventTriggered, Moves
from tweed.compress import Direct, ErrorFeedback, Half, Quantise, TopK
from tweed.exchange.communicator import Communicator, Stats
from tweed.exchange.eager import EagerLimits
from tweed.exchange.messages import exchange_messages
from tweed.exchange.pending import wait_for
from tweed.recipes import local_top_k
from tweed.strategy import Strategy
from tweed.testbed import run_ranks

LENGTHS = [0, 5, 5, 5, 300, 0, 7, 7, 40_000, 40_100, 40_050, 8, 0, 0, 1]


def message(sender: int, receiver: int, number: int) -> Tensor:
    chance = torch.Generator().manual_seed(100 * number + 10 * sender + receiver)
    length = LENGTHS[(number + sender + 2 * receiver) % len(LENGTHS)]
    return torch.randint(256, (length,), dtype=torch.uint8, generator=chance)


def wrong(rank: int, size: int) -> list[int]:
    """The exchanges in which something else came than was sent."""
    comm, limits = Communicator(None, Strategy(), Stats()), EagerLimits(size)
    found = []
    for number in range(2 * len(LENGTHS)):
        mine = [message(rank, other, number) for other in range(size)]
        came = wait_for(exchange_messages(mine, comm, limits))
        if not all(torch.equal(one, message(other, rank, number)) for other, one in enumerate(came)):
            found.append(number)
    return found


@on_each_backend
@pytest.mark.parametrize("size", [1, 2, 4])
def test_messages_come_whole_whatever_their_lengths(backend: str, size: int) -> None:
    assert run_ranks(wrong, size, backend=backend) == [[]] * size


def counted_bytes(rank: int, size: int) -> list[int]:
    """What four exchanges of 100 bytes to the other and 50 to itself add to `bytes_exchanged`."""
    comm, limits, found = Communicator(None, Strategy(), Stats()), EagerLimits(size), []
    for _ in range(4):
        before = comm.stats.bytes_exchanged
        pieces = [torch.zeros(100 if other != rank else 50, dtype=torch.uint8) for other in range(size)]
        wait_for(exchange_messages(pieces, comm, limits))
        found.append(comm.stats.bytes_exchanged - before)
    return found


def test_lengths_count_as_exchanged_too() -> None:
    """Of bytes that cross once, half counts."""
    assert run_ranks(counted_bytes, 2, backend="tweed") == [[(100 + 50 + 2 * 8) // 2] * 4] * 2


FOUR_BITS, TWO = Direct(Quantise(4, 64)), {"all_to_all_single": 2}
#: Strategies, after how many steps, and how many operations the last one took then at one of three ranks.
OPERATIONS: dict[str, tuple[Strategy, int, dict[str, int]]] = {
    "one there, one back": (Strategy(compress=FOUR_BITS), 4, TWO),
    "first packets, from rank to rank": (Strategy(compress=ErrorFeedback(TopK(0.1))), 1, TWO | {"isend": 4}),
    "movements": (local_top_k(every=1), 1, TWO | {"isend": 4}),
    "a sum": (Strategy(compress=Direct(Half())), 2, {"all_reduce": 2}),
    "a rule that can do without one": (
        Strategy(compress=FOUR_BITS, aggregate=Median()), 4, TWO | {"all_reduce": 1},
    ),
    "a norm that decides": (
        Strategy(cadence=EventTriggered(Moves(1.0, 1e-9)), compress=FOUR_BITS), 4, TWO | {"all_reduce": 1},
    ),
}  # fmt: skip


def operations(rank: int, size: int) -> dict[str, dict[str, int]]:
    return {name: of_last_step(rank, strategy, steps) for name, (strategy, steps, _) in OPERATIONS.items()}


def of_last_step(rank: int, strategy: Strategy, steps: int) -> dict[str, int]:
    model = nn.Linear(200, 30)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = tweed.attach(model, optimizer, strategy)
    with ExitStack() as stack:
        spies = {
            name: stack.enter_context(mock.patch.object(dist, name, wraps=getattr(dist, name)))
            for name in ("all_reduce", "all_to_all_single", "isend")
        }
        for number in range(steps):
            for spy in spies.values():
                spy.reset_mock()
            optimizer.zero_grad()
            x = torch.randn(4, 200, generator=torch.Generator().manual_seed(10 * number + rank))
            model(x).square().sum().backward()
            optimizer.step()
    run.detach()
    return {name: spy.call_count for name, spy in spies.items() if spy.call_count}


def test_an_exchange_takes_as_many_operations_as_promised() -> None:
    for found in run_ranks(operations, 3, backend="tweed"):
        assert found == {name: expected for name, (_, _, expected) in OPERATIONS.items()}
