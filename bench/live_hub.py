"""Updates per second and delays behind a live hub, in a testbed, beside the same hub in the simulator.

Workers do not compute: they sleep for as long as `simulate.disturbances` draws for a step, and hand over as
many bytes as a model of 62,500 numbers has. The links are such that it takes a given share of a step over
one of them. `simulate.hub` gets the same rates and the same times.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import tweed
from bench.run import Row
from bench.units import grid
from tweed.errors import NoTestbed
from tweed.exchange.hub import Hub, Offer, Step
from tweed.recipes import mlfabric
from tweed.simulate.disturbances import COMPUTERS
from tweed.simulate.hub import Conditions, VirtualHub
from tweed.strategy import Strategy
from tweed.testbed import Network, run_ranks

PART, GOAL = "live hub", 0.15  # so far from the simulator, at most
WORKERS, _NUMEL, _STEP_S = 8, 62_500, 0.5
#: Of the time that is measured, this much is not: rates are not known yet.
_WARM = 0.25
#: Of the bytes that cross a link, those of a payload: the rest are headers of Ethernet, IP, TCP and records.
_NET = 0.95
_SEED = 1
STRATEGIES: dict[str, Strategy] = {
    "mlfabric": mlfabric(most=2 * WORKERS + 4, at_once=WORKERS),
    "mlfabric, aggregators": mlfabric(most=2 * WORKERS + 4, at_once=WORKERS, aggregators=2),
}


@dataclass(frozen=True, slots=True)
class Scope:
    """Computers by their name, shares of a step that a transfer takes, and how many seconds are measured."""

    computers: str
    shares: tuple[float, ...]
    seconds: float


FULL, QUICK = Scope("C3", (0.02, 0.08, 0.25), 60.0), Scope("C3", (0.08, 0.25), 10.0)


def rows(scope: Scope) -> Iterator[Row]:
    """A live and a simulated row for each strategy and share; without a testbed, one that says why.

    Cost: `seconds` for each of the live ones.
    """
    for share in scope.shares:
        for name, strategy in STRATEGIES.items():
            print(f"  {name}, transfers of {share:.0%}", file=sys.stderr, flush=True)
            rate = 4 * _NUMEL / (share * _STEP_S)
            facts = {"part": PART, "side": name, "computers": scope.computers, "share": share}
            network = Network.parse(f"rate={round(8 * rate / _NET / 1e3)}kbit")
            try:
                hub, *_ = run_ranks(
                    _rank, WORKERS + 1, strategy, scope, timeout=scope.seconds + 120,
                    backend="tweed", network=network,
                )  # fmt: skip
            except NoTestbed as error:
                yield {"part": "no testbed", "network": str(network), "why": str(error)}
                return
            yield facts | {"how": "live", **hub}
            yield facts | {"how": "simulated", **_simulated(strategy, scope, rate)}


def _compute_s(scope: Scope, worker: int, task: int, now: float) -> float:
    return _STEP_S * COMPUTERS[scope.computers].steps(_SEED, WORKERS, worker, task, now / _STEP_S)


def _rank(rank: int, size: int, strategy: Strategy, scope: Scope) -> dict[str, float]:
    """The hub measures; a worker sleeps and steps, until time is over."""
    model = torch.nn.Linear(_NUMEL, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    run = tweed.attach(model, optimizer, strategy)
    noted: list[tuple[float, list[int]]] = []
    if run.serves:
        note = lambda version: noted.append((time.monotonic(), [one.delay for one in run.contributions]))  # noqa: E731
        run.serve(after=note)
    else:
        began, steps = time.monotonic(), 0
        model.weight.grad = torch.ones_like(model.weight)
        while (now := time.monotonic() - began) < scope.seconds:
            steps += 1
            time.sleep(_compute_s(scope, run.worker, steps, now))
            optimizer.step()
    run.detach()
    return _figures(noted, scope.seconds) if noted else {}


def _simulated(strategy: Strategy, scope: Scope, rate: float) -> dict[str, float]:
    hub = Hub.of(
        strategy, WORKERS, lambda member, payload: payload.value, total=lambda message: message.value,
        sum_bytes=4 * _NUMEL,
    )  # fmt: skip
    noted: list[tuple[float, list[int]]] = []

    def learn(member: int, action: Any, model: Any) -> tuple[Offer, Any]:
        return Offer(action.task.number, 4 * _NUMEL, 1.0), np.ones(1)

    def apply(step: Step | None) -> tuple[None, int]:
        if step is not None:
            noted.append((run.now, run.delays[-len(step.contributions) :]))
        return None, 4 * _NUMEL

    def compute_s(member: int, task: int) -> float:
        return _compute_s(scope, member, task, run.now if noted else 0.0)

    conditions = Conditions(
        WORKERS, compute_s, rate, rates=lambda member: (rate, rate), latency_s=1e-4, seed=_SEED
    )
    run = VirtualHub(hub, conditions, learn, apply)
    run.until(seconds=scope.seconds)
    return _figures(noted, scope.seconds)


def _figures(noted: Sequence[tuple[float, list[int]]], seconds: float) -> dict[str, float]:
    """Of commits: when, and the delays of what was in them. Those count from the warm time to the end."""
    begin = noted[0][0]
    some = [(at - begin, delays) for at, delays in noted if _WARM * seconds <= at - begin <= 0.97 * seconds]
    delays = [delay for _, found in some for delay in found]
    span = some[-1][0] - some[0][0]
    return {
        "contributions_per_s": round(len(delays) / span, 3),
        "commits_per_s": round(len(some) / span, 3),
        "delay": round(float(np.mean(delays)), 3),
        "in_sums": round(sum(len(found) for _, found in some if len(found) > 1) / len(delays), 3),
    }


def table(rows: Sequence[Row]) -> str:
    """Live beside simulated."""
    found = {(row["share"], row["side"], row["how"]): row for row in rows if row["part"] == PART}
    body = []
    for share, side in dict.fromkeys((share, side) for share, side, _ in found):
        live, virtual = found[share, side, "live"], found[share, side, "simulated"]
        body.append(
            (
                side,
                f"{share:.0%}",
                *(
                    f"{live[what]:.2f}, {virtual[what]:.2f} ({live[what] / virtual[what] - 1:+.0%})"
                    for what in ("contributions_per_s", "delay")
                ),
                f"{live['in_sums']:.0%}, {virtual['in_sums']:.0%}",
            )
        )
    head = (
        "strategy", "transfer / step", "updates per second: live, simulated",
        "mean delay in commits: live, simulated", "in sums: live, simulated",
    )  # fmt: skip
    words = f"{WORKERS} workers and a hub, C3: see `simulate.disturbances`."
    return f"## A live hub beside its simulator\n\n{words}\n\n{grid(head, body)}" if body else ""
