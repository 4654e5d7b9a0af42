"""Flower: its ServerApp and ClientApp, of which one is hostile, with a rule of ours.

Messages go from one to the other within this process: Flower's simulator would start Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.integrations.ranks import needs
from tweed.aggregate import Mean, MultiKrum, Weighted, Zeno
from tweed.errors import UsageError

needs("flwr", "flower")

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402 - where it is there
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

from tweed.integrations.flower import TweedStrategy  # noqa: E402

CLIENTS, ROUNDS, LR = 5, 8, 0.1


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(8, 1)


def loss(net: torch.nn.Module, client: int) -> torch.Tensor:
    """On a client's samples."""
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(client))
    return F.mse_loss(net(x), x.sum(1, keepdim=True))


def clients(hostile: int | None, changed: Callable[[RecordDict], object]) -> Any:
    """A step of gradient descent each; who is hostile sends large values, in a reply that is changed."""
    app = ClientApp()

    @app.train()
    def train(message: Any, context: Any) -> Any:
        client, net = int(context.node_config["partition-id"]), model()
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        value = loss(net, client)
        value.backward()
        for param in net.parameters():
            with torch.no_grad():
                param.sub_(LR * param.grad) if client != hostile else param.fill_(1e6)
        metrics = MetricRecord({"num-examples": 32, "loss": value.item()})
        content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
        if client == hostile:
            changed(content)
        return Message(content=content, reply_to=message)

    return app


class OneProcess(Grid):
    """Hands messages to clients, one after the other."""

    def __init__(self, app: ClientApp) -> None:
        self._app = app

    def get_node_ids(self) -> Iterable[int]:
        return range(10, 10 + CLIENTS)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        for message in messages:
            node = message.metadata.dst_node_id
            yield self._app(message, Context(1, node, {"partition-id": node - 10}, RecordDict(), {}))

    def _never(self, *given: Any, **named: Any) -> Any:
        raise NotImplementedError

    set_run = create_message = push_messages = pull_messages = _never
    run = property(_never)


def trained(
    strategy: FedAvg, hostile: int | None = None, changed: Callable[[RecordDict], object] = bool
) -> dict[str, torch.Tensor]:
    """The model at the end."""
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # as in a process of its own
    result = strategy.start(OneProcess(clients(hostile, changed)), ArrayRecord(model().state_dict()), ROUNDS)
    return dict(result.arrays.to_torch_state_dict())


SETTINGS = {"fraction_evaluate": 0.0, "min_train_nodes": CLIENTS, "min_available_nodes": CLIENTS}


def ours(rule: Any) -> TweedStrategy:
    return TweedStrategy(rule, **SETTINGS)


def test_the_weighted_mean_is_fedavg() -> None:
    expected, found = trained(FedAvg(**SETTINGS)), trained(ours(Weighted()))
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and torch.allclose(found[name], value, atol=1e-6)


def test_who_is_hostile_leads_the_mean_astray_and_not_the_rule() -> None:
    strategy, net = ours(MultiKrum(1)), model()
    before = loss(net, 0).item()
    assert trained(ours(Mean()), hostile=3)["weight"].abs().max() > 1e5
    net.load_state_dict(trained(strategy, hostile=3))
    assert loss(net, 0).item() < before / 2
    believed = {verdict.sender: verdict.weight > 0 for verdict in strategy.verdicts}
    assert believed == {10: True, 11: True, 12: True, 13: False, 14: True}


def renamed(content: RecordDict) -> None:
    content["arrays"] = ArrayRecord({f"my {name}": array for name, array in content["arrays"].items()})


def turned(content: RecordDict) -> None:
    """The same names in another order: values are where their names say."""
    content["arrays"] = ArrayRecord(dict(reversed([*model().state_dict().items()])))


@pytest.mark.parametrize(
    ("changed", "senders"),
    [
        (renamed, 4),
        (lambda content: content["metrics"].update({"num-examples": float("nan")}), 4),
        (lambda content: content.update({"more": MetricRecord({"num-examples": 1})}), 4),
        (turned, 5),
    ],
)
def test_a_reply_that_does_not_fit_is_left_out_and_ends_no_run(
    changed: Callable[[RecordDict], object], senders: int
) -> None:
    strategy, net = ours(MultiKrum(1)), model()
    before = loss(net, 0).item()
    net.load_state_dict(trained(strategy, 3, changed))
    assert loss(net, 0).item() < before / 2 and len(strategy.verdicts) == senders


def test_a_round_with_too_few_replies_leaves_the_model() -> None:
    strategy = ours(MultiKrum(1))
    assert strategy.aggregate_train(1, []) == (None, None)


def test_a_rule_that_cannot_hold_is_refused() -> None:
    with pytest.raises(UsageError, match="samples that the server trusts"):
        ours(Zeno(f=1, lr=0.1))
    with pytest.raises(UsageError):
        ours(MultiKrum(3))
