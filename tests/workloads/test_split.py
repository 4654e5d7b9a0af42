"""Split training: server and clients in one process, over ranks, and over sealed links."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.workloads.split_ranks import batches, lower, multicast_rank, split_rank, upper
from tweed.compress import Identity, Quantise, TopK
from tweed.errors import DataError, NonFinite, PeerLost, ShapeMismatch, UsageError
from tweed.exchange.stages import Cut
from tweed.links.address import Credentials
from tweed.testbed import Network, run_ranks
from tweed.testbed.ranks import RankFailed
from tweed.workloads.split import (
    ServerPass,
    SplitClient,
    SplitServer,
    aggregated_rows,
    federated_average,
    sequential_step,
    split_step,
)
from tweed.workloads.split.keyed import KeyedServer, train_keyed
from tweed.workloads.split.messages import write
from tweed.workloads.split.vertical import VerticalLeader, VerticalParty

CRITERION = nn.functional.cross_entropy


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


def parts(
    clients: int,
    phi: float | Callable[[int], float] = 0.0,
    at_client: bool = False,
    cut: Cut | None = None,
    fewest: int = 1,
) -> tuple[SplitServer, list[SplitClient]]:
    top = upper()
    server = SplitServer(top, sgd(top), None if at_client else CRITERION, phi, cut, fewest)
    lowers = [lower(seed) for seed in range(clients)]
    loss = CRITERION if at_client else None
    return server, [SplitClient(one, sgd(one), cut, loss) for one in lowers]


def state(server: SplitServer, clients: list[SplitClient]) -> list[Tensor]:
    modules = [server.upper, *(client.lower for client in clients)]
    return [param.detach().clone() for module in modules for param in module.parameters()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.parametrize("phi", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("at_client", [False, True])
def test_one_client_is_plain_sgd_to_the_last_bit(phi: float, at_client: bool) -> None:
    server, clients = parts(1, phi, at_client)
    model = nn.Sequential(lower(0), upper())
    optimizer = sgd(model)
    for step in range(4):
        x, y = batches(step, 7)
        loss = CRITERION(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert split_step(server, clients, [(x, y)]) == loss.item()
    assert same(
        state(server, clients), [param.detach() for param in [*model[1].parameters(), *model[0].parameters()]]
    )


def test_without_aggregation_it_is_parallel_split_learning_to_the_last_bit() -> None:
    server, clients = parts(3)
    lowers, top = [lower(seed) for seed in range(3)], upper()
    optimizers = [sgd(module) for module in (top, *lowers)]
    for step in range(3):
        given = [batches(10 * step + client, 4) for client in range(3)]
        hidden = [module(x) for module, (x, _) in zip(lowers, given, strict=True)]
        cut = torch.cat(hidden).detach().requires_grad_()
        outputs = top(cut)
        mine = [one.detach().requires_grad_() for one in outputs.split(4)]
        for out, (_, y) in zip(mine, given, strict=True):
            CRITERION(out, y).backward()
        optimizers[0].zero_grad()
        outputs.backward(torch.cat([1 / 3 * out.grad for out in mine if out.grad is not None]))
        assert cut.grad is not None
        for optimizer, one, gradient in zip(optimizers[1:], hidden, cut.grad.split(4), strict=True):
            optimizer.zero_grad()
            one.backward(gradient / (1 / 3))
        for optimizer in optimizers:
            optimizer.step()
        split_step(server, clients, given)
    assert same(
        state(server, clients), [one.detach() for module in (top, *lowers) for one in module.parameters()]
    )


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    phi=st.floats(0, 1),
)
@settings(max_examples=40)
def test_rows_are_counted(sizes: list[int], phi: float) -> None:
    m = aggregated_rows(phi, sizes)
    seen: list[int] = []

    class Counting(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            seen.append(len(input))
            return super().forward(input)

    weights = [1 / len(sizes)] * len(sizes)
    step = ServerPass(Counting(3, 2), [torch.randn(size, 3) for size in sizes], weights, m)
    found = step.backward([torch.randn(size, 2) for size in sizes])
    rest = sum(size - m for size in sizes)
    assert (step.rows.backward, step.rows.broadcast, step.rows.unicast) == (m + rest, m, rest)
    assert step.rows.forward == sum(seen)
    assert len(found.broadcast) == m and [len(one) for one in found.unicast] == [size - m for size in sizes]
    assert [len(one) for one in step.outputs] == sizes


def test_aggregated_rows_are_back_propagated_at_their_averages() -> None:
    top, weights = upper(), [0.25, 0.75]
    activations = [torch.randn(4, 6) for _ in weights]
    gradients = [torch.randn(4, 3) for _ in weights]
    found = ServerPass(top, activations, weights, 4).backward(gradients)
    mean = (0.25 * activations[0] + 0.75 * activations[1]).requires_grad_()
    top(mean).backward(0.25 * gradients[0] + 0.75 * gradients[1])
    assert mean.grad is not None and torch.allclose(found.broadcast, mean.grad)


def test_phi_goes_by_a_schedule_and_is_a_share() -> None:
    server, clients = parts(2, lambda step: 1.0 if step < 2 else 0.0)
    counted = []
    for step in range(3):
        split_step(server, clients, [batches(step, 4), batches(step + 9, 5)])
        counted.append((server.rows.broadcast, server.rows.unicast))
    assert counted == [(4, 1), (4, 1), (0, 9)]
    for phi in (-0.1, 1.5, float("nan")):
        with pytest.raises(UsageError, match="from 0 to 1"):
            parts(1, phi)


@pytest.mark.parametrize("cut", [Cut(TopK(0.5), Identity()), Cut(Quantise(8), Quantise(8)), Cut()], ids=repr)
@pytest.mark.parametrize("phi", [0.0, 0.5, 1.0])
def test_codecs_go_both_ways(cut: Cut, phi: float) -> None:
    server, clients = parts(3, phi, cut=cut)
    losses = [split_step(server, clients, [batches(one, 12) for one in range(3)]) for _ in range(30)]
    assert losses[-1] < losses[0]


def test_labels_at_the_client_give_the_same_steps() -> None:
    here, there = parts(3, 0.5), parts(3, 0.5, at_client=True)
    for step in range(3):
        given = [batches(step + client, 4 + client) for client in range(3)]
        assert split_step(*here, given) == pytest.approx(split_step(*there, given))
    assert same(state(*here), state(*there))


def test_both_go_on_from_checkpoints() -> None:
    cut = Cut(TopK(0.3), Quantise(8))
    whole, first = parts(2, 0.5, cut=cut), parts(2, 0.5, cut=cut)
    for step in range(6):
        if step == 3:
            again = parts(2, 0.5, cut=cut)
            again[0].load_state_dict(copy.deepcopy(first[0].state_dict()))
            for client, stored in zip(again[1], first[1], strict=True):
                client.load_state_dict(copy.deepcopy(stored.state_dict()))
            first = again
        for one in (whole, first):
            split_step(*one, [batches(step, 4), batches(step + 50, 4)])
    assert same(state(*whole), state(*first)) and first[0].steps == 6


def test_other_cuts_are_named_and_change_nothing() -> None:
    server, clients = parts(2)
    wide = nn.Linear(5, 8)
    clients[1] = SplitClient(wide, sgd(wide))
    before = state(server, clients)
    with pytest.raises(ShapeMismatch, match=r"client 1 sends rows of \[8\], client 0 of \[6\]"):
        split_step(server, clients, [batches(0, 4), batches(1, 4)])
    assert same(before, state(server, clients)) and server.steps == 0


def test_layers_with_statistics_of_batches_are_refused() -> None:
    top = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
    with pytest.raises(UsageError, match=r"'1', BatchNorm1d"):
        SplitServer(top, sgd(top), CRITERION)
    SplitServer(top.eval(), sgd(top), CRITERION)


def test_what_is_not_finite_is_named_at_both_ends() -> None:
    server, clients = parts(2)
    x, y = batches(0, 4)
    with pytest.raises(NonFinite, match="nothing was sent"):
        clients[0].start(torch.full_like(x, float("inf")), y)
    server.join(0)
    good = clients[0].start(x, y)
    server.join(1)
    nan, _, _ = server.cut.encode(torch.full((4, 6), float("nan")), server.cut.start_activations())
    with pytest.raises(NonFinite, match="activations of client 1"):
        server.handle(1, write("rows", 0, activations=nan, labels=y, weight=4.0))
    server.handle(0, good)
    assert server.awaited == [1] and server.steps == 0


@pytest.mark.parametrize("at_client", [False, True])
def test_a_step_goes_on_without_a_client_that_vanishes(at_client: bool) -> None:
    server, clients = parts(2, 0.5, at_client)
    alone, others = parts(2, 0.5, at_client)
    x, y = batches(0, 4)
    for number in (0, 1):
        server.join(number)
    for number in (0, 1)[: 1 + at_client]:
        server.handle(number, clients[number].start(x, y))
    server.poll()
    server.leave(1)
    for send in server.poll():
        if (answer := clients[0].handle(send.data)) is not None:
            server.handle(0, answer)
    for send in server.poll():
        clients[0].handle(send.data)
    split_step(alone, others[:1], [(x, y)])
    assert (
        server.steps == 1
        and clients[0].is_done
        and same(state(server, clients[:1]), state(alone, others[:1]))
    )


def test_a_client_that_returns_gets_the_gradient_of_its_batch_again() -> None:
    server, clients = parts(2, 0.5)
    steady, others = parts(2, 0.5)
    given = [batches(0, 4), batches(1, 4)]
    messages = [client.start(*batch) for client, batch in zip(clients, given, strict=True)]
    for number in (0, 1):
        server.join(number)
    for number in (0, 1):
        server.handle(number, messages[number])
    for send in server.poll():
        if 0 in send.to:
            clients[0].handle(send.data)
    server.leave(1)  # it has not heard
    server.join(1)
    server.handle(1, messages[1])
    for send in server.poll():
        assert send.to == (1,)
        clients[1].handle(send.data)
    split_step(steady, others, given)
    assert server.steps == 1 and same(state(server, clients), state(steady, others))


def test_what_goes_to_all_may_come_by_other_ways_or_not_at_all() -> None:
    server, clients = parts(2, 1.0)
    given = [batches(0, 4), batches(1, 4)]
    for number in (0, 1):
        server.join(number)
    for number in (0, 1):
        server.handle(number, clients[number].start(*given[number]))
    shared, *own = server.poll()
    assert shared.to == (0, 1)
    clients[0].overhear(b"a stranger's")
    clients[0].overhear(shared.data)
    for number, send in enumerate(own):
        clients[number].handle(send.data)
    assert clients[0].is_done and clients[1].lacks and not clients[0].lacks
    server.handle(1, clients[1].again())
    (again,) = server.poll()
    assert again.to == (1,) and again.data == shared.data
    clients[1].handle(again.data)
    assert clients[1].is_done


def test_damaged_messages_are_refused() -> None:
    server, clients = parts(1)
    server.join(0)
    for data in (b"", b"\x00" * 40, clients[0].start(*batches(0, 4))[:-3]):
        with pytest.raises(DataError, match="client 0"):
            server.handle(0, data)
    with pytest.raises(DataError, match="takes no part"):
        server.handle(5, clients[0].start(*batches(0, 4)))


@pytest.mark.parametrize("at_client", [False, True])
def test_ranks_take_the_steps_of_one_process(at_client: bool) -> None:
    found = run_ranks(split_rank, 3, 0.5, at_client, 4, backend="tweed", timeout=60.0)
    server, clients = parts(2, 0.5, at_client)
    for step in range(4):
        split_step(server, clients, [batches(step, 4), batches(step + 100, 4)])
    assert same(state(server, clients), [torch.tensor(one) for rank in found for one in rank])


def test_ranks_hear_what_is_wrong_with_another() -> None:
    with pytest.raises(RankFailed, match="client 2 sends rows of"):
        run_ranks(split_rank, 3, 0.5, False, 1, 2, backend="tweed", timeout=60.0)


def test_keyed_clients_come_go_and_return() -> None:
    """Two clients train over sealed links; the link of each breaks now and then, as the server has it."""
    secret = Credentials(secret="a secret of many letters")
    server, clients = parts(2, 0.5, fewest=2)
    losses: list[list[float]] = [[], []]
    with KeyedServer(server, secret, "127.0.0.1:0") as keyed:

        def train(number: int) -> None:
            given = [batches(step, 4) for step in range(3)]
            losses[number] = train_keyed(clients[number], given, keyed.address, secret)

        threads = [threading.Thread(target=train, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        keyed.serve(1)
        for link in list(keyed._key_of):
            keyed._links.cut(link, "to see whether they return")
        keyed.serve(2)
        for thread in threads:
            thread.join()
    assert server.steps == 3 and [len(one) for one in losses] == [3, 3]


def vertical(**more: Any) -> tuple[VerticalLeader, dict[str, VerticalParty]]:
    torch.manual_seed(3)
    columns = {"bank": ([1, 2, 3, 4], 2), "shop": ([4, 3, 2, 9], 3)}
    parties = {}
    for name, (keys, width) in columns.items():
        x = torch.tensor([[10.0 * key + column for column in range(width)] for key in keys]) / 50
        module = nn.Linear(width, 4)
        parties[name] = VerticalParty(name, module, sgd(module), keys, x)
    top = nn.Linear(8, 1)
    labels = {key: [float(key)] for key in range(10)}
    leader = VerticalLeader(
        top,
        sgd(top),
        nn.functional.mse_loss,
        {name: one.keys for name, one in parties.items()},
        labels,
        **more,
    )
    return leader, parties


def test_vertical_parties_are_one_model() -> None:
    leader, parties = vertical()
    assert leader.keys == [2, 3, 4]
    lowers = [copy.deepcopy(one.lower) for one in parties.values()]
    top = copy.deepcopy(leader.upper)
    optimizers = [sgd(module) for module in (top, *lowers)]
    for _ in range(4):
        asked = leader.start([4, 2])
        for name, party in parties.items():
            leader.handle(name, party.handle(asked) or b"")
        for name, data in leader.finish().items():
            parties[name].handle(data)
        xs = [
            torch.tensor([[10.0 * key + c for c in range(width)] for key in (4, 2)]) / 50 for width in (2, 3)
        ]
        hidden = torch.cat([module(x) for module, x in zip(lowers, xs, strict=True)], 1)
        loss = nn.functional.mse_loss(top(hidden), torch.tensor([[4.0], [2.0]]))
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        assert leader.loss == pytest.approx(loss.item(), rel=1e-5)


def test_a_missing_party_ends_the_step_by_name() -> None:
    leader, parties = vertical()
    before = copy.deepcopy(leader.upper.state_dict())
    asked = leader.start([2, 3])
    leader.handle("bank", parties["bank"].handle(asked) or b"")
    with pytest.raises(PeerLost, match="without shop"):
        leader.finish()
    assert all(torch.equal(before[name], one) for name, one in leader.upper.state_dict().items())
    leader.handle("shop", parties["shop"].handle(asked) or b"")
    assert set(leader.finish()) == {"bank", "shop"}


def test_rows_that_a_party_has_not_are_named() -> None:
    leader, parties = vertical()
    with pytest.raises(DataError, match="party shop has no row 1"):
        parties["shop"].handle(leader.start([1, 2]))
    with pytest.raises(DataError, match="party bank has sent 1 rows, and 2"):
        other = parties["bank"].handle(leader.start([2]))
        leader.start([2, 3])
        leader.handle("bank", other or b"")


def test_clients_of_sequential_split_learning_are_one() -> None:
    server, clients = parts(3)
    alone, one = parts(1)
    one[0].lower.load_state_dict(clients[2].lower.state_dict())
    given = [batches(number, 4) for number in range(3)]
    sequential_step(server, clients, given)
    plain = [SplitClient(one[0].lower, sgd(one[0].lower)) for _ in given]
    for client, batch in zip(plain, given, strict=True):
        split_step(alone, [client], [batch])
    assert same(state(server, clients[2:]), state(alone, one))


def test_federated_averages_are_the_same_at_all_and_weighted() -> None:
    _, clients = parts(2)
    first, second = (client.lower.state_dict()["0.weight"].clone() for client in clients)
    federated_average(clients, [3, 1])
    for client in clients:
        assert torch.allclose(client.lower.state_dict()["0.weight"], 0.75 * first + 0.25 * second)
    clients[1] = SplitClient(nn.Linear(5, 8), sgd(clients[0].lower))
    with pytest.raises(ShapeMismatch, match="client 1"):
        federated_average(clients)


def outcome(client: SplitClient, server: SplitServer, number: int) -> str:
    """What a client hears: "" or an error."""
    said = ""
    for send in server.poll():
        if number in send.to:
            try:
                client.handle(send.data)
            except (DataError, NonFinite, ShapeMismatch) as error:
                said = str(error)
    return said


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (torch.full((4,), 99), "client 1: its labels give no loss"),
        (torch.zeros(4, 7, dtype=torch.int64), "client 1: its labels give no loss"),
    ],
    ids=["out of range", "another shape"],
)
def test_a_client_whose_labels_give_no_loss_is_told_so_and_the_others_go_on(
    labels: Tensor, words: str
) -> None:
    server, clients = parts(2)
    server.join(0)
    server.join(1)
    server.handle(1, clients[1].start(batches(1, 4)[0], labels))
    server.handle(0, clients[0].start(*batches(0, 4)))
    sends = server.poll()
    assert server.steps == 1 and server.clients == [0]
    for send in sends:
        if 0 in send.to:
            clients[0].handle(send.data)
    assert clients[0].is_done
    with pytest.raises(DataError, match=words):
        for send in sends:
            if 1 in send.to:
                clients[1].handle(send.data)


def test_a_loss_that_is_not_finite_changes_nothing() -> None:
    top = upper()
    server = SplitServer(top, sgd(top), lambda outputs, labels: outputs.sum() * torch.inf)
    client = SplitClient(lower(0), sgd(lower(0)))
    before = [param.detach().clone() for param in top.parameters()]
    server.join(0)
    server.handle(0, client.start(*batches(0, 4)))
    assert "no finite gradient" in outcome(client, server, 0)
    assert same(before, [param.detach() for param in top.parameters()]) and server.steps == 0


def test_who_has_another_cut_than_the_upper_layers_is_not_the_measure_of_others() -> None:
    server, clients = parts(1)
    other = nn.Linear(batches(0, 4)[0].shape[1], 3)
    wrong = SplitClient(other, sgd(other))
    server.join(1)
    server.handle(1, wrong.start(*batches(1, 4)))
    assert "client 1: rows of [4, 3] do not fit the upper layers" in outcome(wrong, server, 1)
    server.join(0)
    server.handle(0, clients[0].start(*batches(0, 4)))
    assert outcome(clients[0], server, 0) == "" and server.steps == 1


def test_layers_that_begin_to_keep_something_are_refused_at_the_step() -> None:
    norm = nn.InstanceNorm1d(2, track_running_stats=True)
    with pytest.raises(UsageError, match="InstanceNorm1d"):
        SplitServer(norm, torch.optim.SGD(upper().parameters(), 0.1))
    frozen = nn.Sequential(nn.BatchNorm1d(6), upper()).eval()
    server, (client,) = SplitServer(frozen, sgd(frozen), CRITERION), parts(1)[1]
    frozen.train()
    server.join(0)
    with pytest.raises(UsageError, match="BatchNorm1d"):
        server.handle(0, client.start(*batches(0, 4)))


@pytest.mark.usefixtures("namespaces")
def test_what_goes_to_all_crosses_the_servers_link_once() -> None:
    network = Network.parse("rate=100mbit")
    by_multicast, copies = (
        run_ranks(multicast_rank, 4, way, network=network, backend="tweed", timeout=60.0)
        for way in (True, False)
    )
    assert by_multicast[0][0] == copies[0][0]  # the same steps
    message = 16 * 256 * 4
    saved = copies[0][1] - by_multicast[0][1]
    assert 0.8 * 2 * message < saved / 3 < 1.2 * 2 * message  # two copies less in each of three steps
