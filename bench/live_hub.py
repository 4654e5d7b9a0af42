"""A live hub and its standby in a testbed, beside the same in the simulator: updates per second, and delays.

Workers do not compute: they sleep for as long as `simulate.disturbances` draws for a step, and hand over as
many bytes as a model of 62,500 numbers has. The links are such that it takes a given share of a step over
one of them. `simulate.replicated_hub` gets the same rates and the same times. Live, training ends with as
many commits as the simulator makes in the seconds of a scope.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tweed
from bench.run import Row
from bench.units import grid
from tweed import _core
from tweed.aggregate import Each
from tweed.errors import NoTestbed
from tweed.files import write_atomic
from tweed.hub.machine import Hub, Offer, Step
from tweed.hub.machine.build import hub_of
from tweed.hub.standby.machine import Standby
from tweed.recipes import mlfabric
from tweed.simulate.disturbances import COMPUTERS
from tweed.simulate.hub import Conditions, each
from tweed.simulate.replicated_hub import ReplicatedHub, Site
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
    """Computers by their name, shares of a step that a transfer takes, and how long the simulator runs."""

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
            commits, simulated = _simulated(strategy, scope, rate)
            network = Network.parse(f"rate={round(8 * rate / _NET / 1e3)}kbit")
            try:
                with tempfile.TemporaryDirectory() as folder:
                    standby = _core.HubLinks(key_file=f"{folder}/replica").key
                    hub, *_ = run_ranks(
                        _rank, WORKERS + 2, strategy, scope, commits, Path(folder), standby,
                        timeout=3 * scope.seconds + 120, network=network,
                    )  # fmt: skip
            except NoTestbed as error:
                yield {"part": "no testbed", "network": str(network), "why": str(error)}
                return
            yield facts | {"how": "live", **hub}
            yield facts | {"how": "simulated", **simulated}


def _compute_s(scope: Scope, worker: int, task: int, now: float) -> float:
    return _STEP_S * COMPUTERS[scope.computers].steps(_SEED, WORKERS, worker, task, now / _STEP_S)


def _rank(
    rank: int, size: int, strategy: Strategy, scope: Scope, commits: int, folder: Path, standby: str
) -> dict[str, float]:
    """Rank 0 is the hub, which measures; rank 1 is its standby, and the others are workers."""
    model = torch.nn.Linear(_NUMEL, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    if rank > 1:
        _work(model, optimizer, strategy, scope, _address(folder))
        return {}
    common: dict[str, Any] = {"listen": f"{os.environ['TWEED_HOST']}:0", "fewest": WORKERS}
    if rank == 1:
        own = {"key_file": f"{folder}/replica", "replica_of": _address(folder)}
    else:
        own = {"replicas": [standby]}
    run = tweed.serve(model, optimizer, strategy, **common, **own)
    if rank == 0:
        write_atomic(folder / "address", run.address)
    noted: list[tuple[float, list[int]]] = []
    note = lambda version: noted.append((time.monotonic(), [one.delay for one in run.contributions]))  # noqa: E731
    run.serve(commits=commits, after=note)
    run.detach()
    return _figures(noted)


def _address(folder: Path) -> str:
    """The hub's, once it is there."""
    while not (folder / "address").exists():
        time.sleep(0.05)
    return (folder / "address").read_text()


def _work(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, strategy: Strategy, scope: Scope, hub: str
) -> None:
    """Sleeps and steps, until it is over."""
    able = strategy.hub is not None and strategy.hub.aggregators > 0
    run = tweed.attach(model, optimizer, strategy, hub=hub, aggregator=able)
    began, steps = time.monotonic(), 0
    for param in model.parameters():
        param.grad = torch.ones_like(param)
    while not run.over:
        steps += 1
        time.sleep(_compute_s(scope, run.worker, steps, time.monotonic() - began))
        optimizer.step()
    run.detach()


def _simulated(strategy: Strategy, scope: Scope, rate: float) -> tuple[int, dict[str, float]]:
    """How many commits there are in the seconds of the scope, and what is measured of them."""
    noted: list[tuple[float, list[int]]] = []
    given = strategy.hub
    assert given is not None  # all of these have one

    def make_hub() -> Hub:
        return hub_of(
            strategy, WORKERS, lambda member, payload: payload.value, total=lambda message: message.value,
            sum_bytes=4 * _NUMEL,
        )  # fmt: skip

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
    sites = [Site(one, lambda: None, lambda state: None) for one in (apply, lambda step: (None, 4 * _NUMEL))]
    run = ReplicatedHub(
        make_hub,
        lambda: Standby(strategy.aggregate, isinstance(given.when or Each(), Each)),
        conditions,
        each(learn),
        (sites[0], sites[1]),
    )
    run.until(seconds=scope.seconds)
    return len(noted), _figures(noted)


def _figures(noted: Sequence[tuple[float, list[int]]]) -> dict[str, float]:
    """Of commits: when, and the delays of what was in them. Those count from the warm time to the end."""
    begin, end = noted[0][0], noted[-1][0]
    some = [(at, delays) for at, delays in noted if begin + _WARM * (end - begin) <= at]
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
    words = f"{WORKERS} workers, a hub and its replica, C3: see `simulate.disturbances`."
    return f"## A live hub beside its simulator\n\n{words}\n\n{grid(head, body)}" if body else ""
