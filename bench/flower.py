"""Federated averaging of 100 virtual clients: a virtual hub, and Flower's simulator where it is installed.

Both sides train the same model from the same numbers on the same batches, so they must end with the same
model. tweed computes on one thread of one process; Flower on an actor of one thread for each core, by Ray.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD

from bench.run import Row
from bench.units import grid, seconds, times
from tweed.aggregate import All
from tweed.cadence import LocalSteps
from tweed.collective import Hub
from tweed.simulate.hub import Conditions
from tweed.simulate.hub_training import HubTraining, Members
from tweed.simulate.member_steps import SampleLoss
from tweed.strategy import Strategy
from tweed.systems.harness.hub_training import perceptron
from tweed.train.shard import Shard

PART, TASK, CLIENTS, BATCH, LR = "flower", "fashion-mnist", 100, 10, 0.05
#: Local steps of a round, and rounds after the first, which is not timed: processes load their data in it.
LOADS = {1: 10, 5: 10, 60: 3}
REPEATS = 5


def rows() -> Iterator[Row]:
    """Sides take turns; a row has the median over these of seconds for a round. Flower: `pip install
    flwr[simulation]`; without it there are no rows."""
    if not importlib.util.find_spec("flwr"):
        return
    torch.set_num_threads(1)
    for steps, rounds in LOADS.items():
        print(f"  {steps} local steps", file=sys.stderr, flush=True)
        sides: dict[str, Callable[[int, int], tuple[list[float], Tensor]]] = {"tweed": ours, "Flower": theirs}
        found = [{side: run(steps, rounds) for side, run in sides.items()} for _ in range(REPEATS)]
        for side in sides:
            ends = [turn[side][0] for turn in found]
            off = max(float((turn[side][1] - turn["tweed"][1]).abs().max()) for turn in found)
            yield {
                "part": PART,
                "of": steps,
                "side": side,
                "round_s": round(statistics.median((end[-1] - end[0]) / rounds for end in ends), 6),
                "off": off,
            }


def factors(rows: Sequence[Row]) -> Iterator[tuple[int, float]]:
    """By local steps: how often a round of ours fits into one of Flower's."""
    found = {(row["of"], row["side"]): row["round_s"] for row in rows if row["part"] == PART}
    for (steps, side), round_s in found.items():
        if side == "tweed":
            yield steps, found[steps, "Flower"] / round_s


def beside(rows: Sequence[Row]) -> str:
    """Seconds for a round; by how much the models differ in any number."""
    factor = dict(factors(rows))
    body = [
        (
            str(row["of"]),
            row["side"],
            seconds(row["round_s"]),
            "" if row["side"] == "tweed" else times(1.0, factor[row["of"]]),
            f"{row['off']:.0e}",
        )
        for row in rows
        if row["part"] == PART
    ]
    head = ("local steps", "side", "round", "over tweed's", "largest difference of the models")
    title = f"## Federated averaging: {CLIENTS} clients of {TASK}, batches of {BATCH}"
    return f"{title}\n\n{grid(head, body)}" if body else ""


@functools.cache
def shard(client: int) -> Shard:
    """A client's samples."""
    return Shard(TASK, BATCH, client, CLIENTS)


def model() -> nn.Module:
    """As it is before training."""
    torch.manual_seed(1)
    return perceptron(shard(0).arrays)


@functools.cache
def local_model() -> nn.Module:
    """What a process computes with."""
    return model()


def drawn(client: int, batch: int) -> tuple[Tensor, Tensor]:
    """A client's batch of this number."""
    return shard(client).drawn(shard(client).batch(batch))


def ours(steps: int, rounds: int) -> tuple[list[float], Tensor]:
    """When each round had ended, and the model at the end."""
    strategy = Strategy("difference", LocalSteps(steps), collective=Hub(0, All()))
    conditions = Conditions(CLIENTS, lambda member, task: 1.0)
    loss = SampleLoss(drawn, nn.functional.cross_entropy)
    members = Members(loss, lambda params: SGD(params, lr=LR))
    training = HubTraining(model(), strategy, conditions, members, lambda params: SGD(params, lr=1.0))
    ends = []
    for update in range(1, rounds + 2):
        training.run.until(updates=update)
        ends.append(time.perf_counter())
    return ends, nn.utils.parameters_to_vector(training.model.parameters()).detach()


def theirs(steps: int, rounds: int) -> tuple[list[float], Tensor]:
    """The same by Flower's FedAvg over Ray."""
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    import ray
    from flwr.simulation import run_simulation

    ends: list[float] = []
    last: dict[str, Any] = {}

    def ended(number: int, arrays: Any) -> None:
        last["model"] = arrays
        ends.extend([time.perf_counter()] if number else [])

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    server = _server(rounds + 1, ended)
    run_simulation(server, _client(steps), CLIENTS, backend_config=resources)
    ray.shutdown()
    end = model()
    end.load_state_dict(last["model"].to_torch_state_dict())
    return ends, nn.utils.parameters_to_vector(end.parameters()).detach()


def _server(rounds: int, ended: Callable[[int, Any], None]) -> Any:
    """All clients take part in each round, and none evaluates."""
    from flwr.app import ArrayRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    app = ServerApp()

    @app.main()
    def main(nodes: Any, context: Any) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
        begin = ArrayRecord(model().state_dict())
        strategy.start(grid=nodes, initial_arrays=begin, num_rounds=rounds, evaluate_fn=ended)

    return app


def _client(steps: int) -> Any:
    """Local steps of plain SGD on the model that comes with a message."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message: Any, context: Any) -> Any:
        torch.set_num_threads(1)
        client, number = int(context.node_config["partition-id"]), message.content["config"]["server-round"]
        local = local_model()
        local.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = SGD(local.parameters(), lr=LR)
        for step in range(steps * (number - 1), steps * number):
            optimizer.zero_grad()
            inputs, labels = drawn(client, step)
            nn.functional.cross_entropy(local(inputs), labels).backward()
            optimizer.step()
        metrics = MetricRecord({"num-examples": 1})
        content = RecordDict({"arrays": ArrayRecord(local.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    return app
