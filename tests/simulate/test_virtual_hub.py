"""A hub on a virtual network: how long transfers take, and what changes with time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tweed.hub.machine import Hub, Offer
from tweed.hub.machine.worker import Compute
from tweed.simulate.hub import HUB, Conditions, VirtualHub, each


def learn(member: int, action: Compute, model: Any) -> tuple[Offer, Any]:
    return Offer(action.task.number, 100), np.zeros(1)


def one(**settings: Any) -> VirtualHub:
    """One member that computes for a second and sends 100 bytes; a model has none."""
    conditions = Conditions(members=1, compute_s=lambda member, task: 1.0, **settings)
    return VirtualHub(Hub(), conditions, each(learn), lambda step: (None, 0))


def test_a_contribution_takes_its_computation_and_the_slower_link() -> None:
    run = one(hub_rate=50.0, rates=lambda member: (20.0, 99.0))
    run.until(updates=3)
    assert run.now == pytest.approx(3 * (1.0 + 100 / 20))


@pytest.mark.parametrize("node", [0, HUB])
def test_rates_may_change_while_bytes_move(node: int) -> None:
    def share(one: int, now: float) -> tuple[float, float]:
        """From 3 s on a node has a quarter."""
        return (1.0, 3.0) if now < 3 else (0.25 if one == node else 1.0, math.inf)

    run = one(hub_rate=20.0, rates=lambda member: (20.0, 20.0), shares=share)
    run.until(updates=1)
    assert run.now == pytest.approx(3.0 + (100 - 2 * 20) / 5)
