"""A hub with up to 10,000 virtual members: how fast events go, without models and gradients. One core."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from bench.run import Row
from bench.units import grid, seconds
from tweed.aggregate import Cache, Quorum
from tweed.hub.machine import Hub, Offer, Step
from tweed.order import BoundedDelay, FirstIn, ShortestFirst
from tweed.rng import uniform
from tweed.simulate.hub import Conditions, VirtualHub, each

PART, UPDATES, MEMBERS = "virtual hub", 100_000, 10_000
_HUB = partial(Hub, payload_s=1e6)  # no lease ends
#: By name: the hub for so many members. 100 payloads move at once.
HUBS: dict[str, Any] = {
    "each, first in": lambda members: _HUB(order=FirstIn(100)),
    "each, shortest first": lambda members: _HUB(order=ShortestFirst(100)),
    "each, bounded delay": lambda members: _HUB(order=BoundedDelay(2 * members + 100, at_once=100)),
    "each, half have a task": lambda members: _HUB(order=FirstIn(100), tasks=members // 2),
    "cache of 100": lambda members: _HUB(when=Cache(100), order=FirstIn(100)),
    "quorum of 100": lambda members: _HUB(when=Quorum(100), order=FirstIn(100)),
}


def rows(counts: tuple[int, ...], contributions: int = UPDATES) -> Iterator[Row]:
    """Each hub with each number of members, once, until so many contributions are in updates."""
    for name, hub in HUBS.items():
        for members in counts:
            print(f"  {name}, {members} members", file=sys.stderr, flush=True)
            run = VirtualHub(hub(members), _conditions(members), each(_learn), _apply)
            began = time.process_time()
            while len(run.delays) < contributions:
                run.until(updates=len(run.steps) + 1)
            cpu_s = time.process_time() - began
            yield {
                "part": PART,
                "side": name,
                "ranks": members,
                "contributions": len(run.delays),
                "events": run.events,
                "virtual_s": round(run.now, 3),
                "cpu_s": round(cpu_s, 3),
            }


def _conditions(members: int) -> Conditions:
    """Tasks of 50 to 150 seconds. The hub's link could take half of what comes of them, so many wait."""

    def compute_s(member: int, task: int) -> float:
        return 100 * (0.5 + uniform(1, member, task))

    rate = members * 1500 / 100 / 2
    own = rate / 10, rate / 10
    return Conditions(members, compute_s, hub_rate=rate, rates=lambda member: own, latency_s=0.05)


def _learn(member: int, action: Any, model: Any) -> tuple[Offer, Any]:
    number = action.task.number
    return Offer(number, int(1000 + 1000 * uniform(2, member, number))), _VALUE


def _apply(step: Step | None) -> tuple[None, int]:
    return None, 1500


_VALUE = np.zeros(1)


def table(rows: Sequence[Row]) -> str:
    """Events per second of one core."""
    body = [
        (
            row["side"],
            f"{row['ranks']:,}",
            f"{row['contributions']:,}",
            seconds(row["virtual_s"]),
            seconds(row["cpu_s"]),
            f"{row['events']:,}",
            f"{row['events'] / row['cpu_s']:,.0f}",
        )
        for row in rows
        if row["part"] == PART
    ]
    head = ("hub", "members", "contributions", "virtual time", "CPU", "events", "events per second of CPU")
    return f"## A virtual hub\n\n{grid(head, body)}" if body else ""
