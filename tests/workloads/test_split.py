"""Split training: rows, exactness, parties that do wrong, ranks, and columns at several parties."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tweed.compress import Identity
from tweed.errors import DataError, UsageError
from tweed.exchange.stages import Cut
from tweed.simulate.stages import stage_links
from tweed.testbed import run_ranks
from tweed.workloads.split import (
    SplitClient,
    SplitServer,
    VerticalLeader,
    VerticalParty,
    federated_round,
    join,
    matched,
    parallel_round,
    sequential_round,
    serve,
)
from tweed.workloads.split.rows import given_back, reduced, reduced_rows, slots

Batches = list[tuple[Tensor, Tensor]]


def model() -> tuple[nn.Module, nn.Module]:
    generator = torch.Generator().manual_seed(0)
    lower = nn.Sequential(nn.Linear(5, 8), nn.Tanh())
    upper = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    for param in (*lower.parameters(), *upper.parameters()):
        nn.init.normal_(param, std=0.5, generator=generator)
    return lower, upper


def sgd(part: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(part.parameters(), lr=0.1, momentum=0.9)


def parties(clients: int, phi: float | Callable[[int], float] = 0.0) -> tuple[SplitServer, list[SplitClient]]:
    lower, upper = model()
    lowers = [copy.deepcopy(lower) for _ in range(clients)]
    return SplitServer(upper, sgd(upper), phi), [SplitClient(one, sgd(one)) for one in lowers]


def batches(rows: list[int], step: int = 0) -> Batches:
    generator = torch.Generator().manual_seed(step)
    return [(torch.randn(count, 5, generator=generator), torch.arange(count) % 3) for count in rows]


def test_parallel_split_learning_is_what_autograd_does() -> None:
    server, clients = parties(3)
    lowers, upper = [copy.deepcopy(client.lower) for client in clients], copy.deepcopy(server.upper)
    optimizers = [sgd(one) for one in (*lowers, upper)]
    for step in range(3):
        given = batches([4, 6, 5], step)
        weights = [1.0, 2.0, 1.0]
        parallel_round(server, clients, given, weights)
        own = [
            nn.functional.cross_entropy(upper(one(x)), y) for one, (x, y) in zip(lowers, given, strict=True)
        ]
        for optimizer in optimizers:
            optimizer.zero_grad()
        for loss, lower in zip(own, lowers, strict=True):  # a client learns from its own loss
            for param, gradient in zip(
                lower.parameters(),
                torch.autograd.grad(loss, [*lower.parameters()], retain_graph=True),
                strict=True,
            ):
                param.grad = gradient
        total = sum(weight / 4 * loss for weight, loss in zip(weights, own, strict=True))
        for param, gradient in zip(
            upper.parameters(), torch.autograd.grad(total, [*upper.parameters()]), strict=True
        ):
            param.grad = gradient
        for optimizer in optimizers:
            optimizer.step()
    for mine, theirs in zip(
        (*lowers, upper), (*(client.lower for client in clients), server.upper), strict=True
    ):
        same(mine, theirs)


def same(one: nn.Module, other: nn.Module) -> None:
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("phi", [0.0, 0.3, 1.0])
def test_with_one_client_any_share_is_plain_sgd(phi: float) -> None:
    server, (client,) = parties(1, phi)
    whole = nn.Sequential(copy.deepcopy(client.lower), copy.deepcopy(server.upper))
    optimizer = sgd(whole)
    for step in range(4):
        ((x, y),) = batches([6], step)
        parallel_round(server, [client], [(x, y)])
        optimizer.zero_grad()
        nn.functional.cross_entropy(whole(x), y).backward()
        optimizer.step()
    same(whole, nn.Sequential(client.lower, server.upper))


@given(st.floats(0, 1), st.integers(1, 6), st.integers(1, 40))
def test_rows_are_counted(phi: float, clients: int, batch: int) -> None:
    m = slots(phi, [batch] * clients)
    assert reduced_rows([batch] * clients, m) == m + clients * (batch - m)
    assert phi * batch - 1e-6 <= m < phi * batch + 1


@given(st.lists(st.integers(2, 6), min_size=1, max_size=4), st.integers(0, 2))
def test_what_is_reduced_goes_back_to_its_rows(rows: list[int], m: int) -> None:
    parts = [torch.full((count, 2), float(place)) for place, count in enumerate(rows)]
    found = reduced(parts, [1 / len(rows)] * len(rows), m)
    assert len(found) == reduced_rows(rows, m)
    common, own = given_back(found, rows, m)
    assert len(common) == m and all(torch.equal(one, part[m:]) for one, part in zip(own, parts, strict=True))


def test_aggregated_rows_have_the_mean_error_at_the_mean_activation() -> None:
    server, clients = parties(2, 1.0)
    given = batches([4, 4])
    activations = [client.forward(x) for client, (x, _) in zip(clients, given, strict=True)]
    upper = copy.deepcopy(server.upper)
    outputs = [upper(one) for one in activations]
    errors = []
    for out, (_, y) in zip(outputs, given, strict=True):
        leaf = out.detach().requires_grad_()
        errors += torch.autograd.grad(nn.functional.cross_entropy(leaf, y), leaf)
    mean = (0.25 * activations[0] + 0.75 * activations[1]).requires_grad_()
    upper(mean).backward(0.25 * errors[0] + 0.75 * errors[1])
    replies = server.step(activations, [y for _, y in given], [1.0, 3.0])
    torch.testing.assert_close(replies.common, mean.grad)
    assert replies.rows == 4 and all(len(one) == 0 for one in replies.own)


def test_the_share_may_change_with_steps() -> None:
    server, clients = parties(2, lambda step: 1.0 if step < 2 else 0.0)
    assert [parallel_round(server, clients, batches([4, 4], step)).rows for step in range(4)] == [4, 4, 8, 8]


def test_training_learns_with_any_share() -> None:
    for phi in (0.0, 0.5, 1.0):
        server, clients = parties(3, phi)
        losses = []
        for step in range(80):
            given = [(x, (x[:, 0] > 0).long()) for x, _ in batches([32] * 3, step)]
            losses.append(parallel_round(server, clients, given).loss)
        assert losses[-1] < 0.7 * losses[0], phi


def test_federated_clients_are_one_and_sequential_ones_hand_over() -> None:
    server, clients = parties(3)
    federated_round(server, clients, batches([4, 4, 4]), [1.0, 1.0, 2.0])
    same(clients[0].lower, clients[2].lower)
    server, clients = parties(3)
    assert len(sequential_round(server, clients, batches([4, 4, 4]))) == 3
    assert not torch.equal(*(next(client.lower.parameters()) for client in clients[:2]))


def test_a_stored_training_goes_on_bit_by_bit() -> None:
    straight, stored = parties(2, 0.5), parties(2, 0.5)
    for step in range(6):
        if step == 3:
            fresh = parties(2, 0.5)
            for one, other in zip((fresh[0], *fresh[1]), (stored[0], *stored[1]), strict=True):
                one.load_state_dict(copy.deepcopy(other.state_dict()))
            stored = fresh
        for server, clients in (straight, stored):
            parallel_round(server, clients, batches([4, 5], step))
    for one, other in zip(
        (straight[0].upper, *[c.lower for c in straight[1]]),
        (stored[0].upper, *[c.lower for c in stored[1]]),
        strict=True,
    ):
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("phi", [-0.1, 1.1])
def test_a_share_that_is_none_is_refused(phi: float) -> None:
    server, clients = parties(2, phi)
    with pytest.raises(UsageError, match="no share of a batch"):
        parallel_round(server, clients, batches([4, 4]))


def test_what_clients_do_wrong_is_named_and_changes_nothing() -> None:
    server, _ = parties(2, 0.5)
    before = copy.deepcopy(server.upper)
    fine, labels = torch.zeros(4, 8), torch.zeros(4, dtype=torch.int64)
    for wrong, words in (
        (torch.zeros(4, 7), r"client 1 sends activations \[4, 7\]"),
        (torch.full((4, 8), torch.nan), "client 1 sends activations that are not finite"),
        (torch.zeros(3, 8), "client 1 sends activations .* 4 labels"),
    ):
        with pytest.raises((UsageError, DataError), match=words):
            server.step([fine, wrong], [labels, labels])
    with pytest.raises(UsageError, match="weights"):
        server.step([fine], [labels], [0.0])
    same(before, server.upper)
    assert server.steps == 0


def test_layers_over_the_batch_do_not_go_with_aggregates() -> None:
    upper = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    with pytest.raises(UsageError, match="layer '1' of the upper model keeps or draws"):
        SplitServer(upper, sgd(upper), 0.5)
    SplitServer(upper, sgd(upper), 0.0)


def test_gradients_without_activations_are_refused() -> None:
    _, (client,) = parties(1)
    with pytest.raises(UsageError, match="call forward"):
        client.backward(torch.zeros(0, 8), torch.zeros(4, 8))


def over_ranks(rank: int, size: int, phi: float, keeps: bool) -> list[Tensor]:
    server, clients = parties(size - 1, phi)
    if rank == 0:
        serve(server, 3)
        return [param.detach() for param in server.upper.parameters()]
    own = [batches([4, 6][: size - 1], step)[rank - 1] for step in range(3)]
    join(clients[rank - 1], own, weight=float(rank), loss=nn.functional.cross_entropy if keeps else None)
    return [param.detach() for param in clients[rank - 1].lower.parameters()]


@pytest.mark.parametrize("phi", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("keeps", [False, True], ids=["labels at the server", "labels at the clients"])
def test_ranks_are_as_one_process(phi: float, keeps: bool) -> None:
    found = run_ranks(over_ranks, 3, phi, keeps, backend="tweed")
    server, clients = parties(2, phi)
    for step in range(3):
        parallel_round(server, clients, batches([4, 6], step), [1.0, 2.0])
    for weights, part in zip(found, (server.upper, *(client.lower for client in clients)), strict=True):
        for mine, param in zip(weights, part.parameters(), strict=True):
            torch.testing.assert_close(mine, param.detach(), atol=1e-6, rtol=1e-5)


def test_columns_at_two_parties_are_as_at_one() -> None:
    torch.manual_seed(0)
    mine, theirs, upper = nn.Linear(2, 4), nn.Linear(3, 4), nn.Linear(8, 3)
    whole = copy.deepcopy([mine, theirs, upper])
    ours, far = stage_links(Cut(Identity(), Identity()))[::-1]
    leader = VerticalLeader(upper, sgd(nn.ModuleList([mine, upper])), {"clinic": ours}, mine)
    party = VerticalParty(theirs, sgd(theirs), far)
    optimizer = sgd(nn.ModuleList(whole))
    for step in range(3):
        ((x, y),) = batches([6], step)
        party.send(x[:, 2:])
        leader.step(x[:, :2], y)
        party.step()
        optimizer.zero_grad()
        nn.functional.cross_entropy(
            whole[2](torch.cat([whole[0](x[:, :2]), whole[1](x[:, 2:])], 1)), y
        ).backward()
        optimizer.step()
    for one, other in zip((mine, theirs, upper), whole, strict=True):
        same(one, other)


def test_a_party_with_other_rows_ends_the_step_by_name() -> None:
    upper, theirs = nn.Linear(4, 3), nn.Linear(3, 4)
    ours, far = stage_links(Cut(Identity(), Identity()))[::-1]
    leader, party = (
        VerticalLeader(upper, sgd(upper), {"clinic": ours}),
        VerticalParty(theirs, sgd(theirs), far),
    )
    party.send(torch.zeros(5, 3))
    with pytest.raises(DataError, match="party 'clinic' sends 5 rows for 4"):
        leader.step(None, torch.zeros(4, dtype=torch.int64))
    with pytest.raises(UsageError, match="call send"):
        VerticalParty(theirs, sgd(theirs), far).step()


def test_rows_are_matched_by_key() -> None:
    assert matched([[3, 1, 2], [2, 3, 9]]) == [[0, 2], [1, 0]]
    with pytest.raises(DataError, match="party 1 has the key 2 in rows 0 and 2"):
        matched([[1, 2], [2, 1, 2]])
    with pytest.raises(DataError, match="no row is at all parties"):
        matched([[1], [2]])


def alone(rank: int, size: int) -> Any:
    server, _ = parties(1)
    with pytest.raises(UsageError, match="needs a client"):
        serve(server, 1)
    return True


def test_a_server_without_clients_is_refused() -> None:
    assert run_ranks(alone, 1, backend="tweed") == [True]
