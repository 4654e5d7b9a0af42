"""How good an order of transfers is, beside the best that there is: of small batches, by trying all.

Transfers go one after the other over one link, and each is a commit of its own. An order may drop what cannot
be in time; orders are compared over what each batch's best one can send, so batches from which something must
be dropped are left out.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Hashable, Sequence
from typing import Any

from tweed.order import BoundedDelay, Committed, Drop, Ended, FirstIn, Offered, Order, Transfer
from tweed.report.notes import Line
from tweed.rng import uniform

#: Of a transfer: bytes, and so many other commits may be between its base and its own.
Job = tuple[int, int]


def compared(batches: int, seed: int) -> Line:
    """Mean completion times over those of the best order, over random batches of 2 to 8 transfers.

    Returns: for the bounded delay and first in: the mean ratio and the worst; how many batches there were,
      how many transfers came too late, and the longest bound.
    """
    ratios: dict[str, list[float]] = {"bounded": [], "first in": []}
    late = {"bounded": 0, "first in": 0}
    for number in range(batches):
        jobs = _batch(seed, number)
        best = _best(jobs)
        if best is None:
            continue
        for name, order in (("bounded", BoundedDelay(0)), ("first in", FirstIn())):
            mean, missed = _walked(order, jobs)
            ratios[name].append(mean / best)
            late[name] += missed
    found: dict[str, Any] = {"batches": len(ratios["bounded"])}
    for name, mine in ratios.items():
        found[name] = {"mean": statistics.fmean(mine), "most": max(mine), "late": late[name]}
    return found


def planning_s(updates: int, seed: int) -> float:
    """Seconds until an order has decided on so many updates that are offered together."""
    order = BoundedDelay(2 * updates, at_once=1)
    state = order.start()
    began = time.perf_counter()
    for key in range(updates):
        base = -int(updates * uniform(seed, key))
        state = order.handle(Offered(Transfer(key, 1 + int(1000 * uniform(seed, key, 1)), base)), state, 0.0)
    for version in range(updates):
        decision, state = order.poll(state, 0.0)
        assert decision is not None  # something waits
        state = order.handle(Ended(decision.key), state, 0.0)
        state = order.handle(Committed(version + 1), state, 0.0)
    return time.perf_counter() - began


def _batch(seed: int, number: int) -> list[Job]:
    count = 2 + int(7 * uniform(seed, number))
    return [
        (1 + int(100 * uniform(seed, number, one, 1)), int(2 * count * uniform(seed, number, one, 2)))
        for one in range(count)
    ]


def _mean(jobs: Sequence[Job]) -> float:
    return statistics.fmean(itertools.accumulate(size for size, _ in jobs))


def _best(jobs: Sequence[Job]) -> float | None:
    """The least mean completion of all orders in which each is in time; None: there is none."""
    fine = (
        _mean(way)
        for way in itertools.permutations(jobs)
        if all(place <= slack for place, (_, slack) in enumerate(way))
    )
    return min(fine, default=None)


def _walked(order: Order[Any], jobs: Sequence[Job]) -> tuple[float, int]:
    """Mean completion by an order, and how many came too late or were dropped."""
    state, missed = order.start(), 0
    sent: list[Job] = []
    places: dict[Hashable, int] = {key: key for key in range(len(jobs))}
    for key, (size, slack) in enumerate(jobs):
        state = order.handle(Offered(Transfer(key, size, slack)), state, 0.0)
    while len(sent) + missed < len(jobs):
        decision, state = order.poll(state, 0.0)
        assert decision is not None and not isinstance(decision, Drop)  # all can be in time
        job = jobs[places[decision.key]]
        missed += job[1] < len(sent)
        sent.append(job)
        state = order.handle(Ended(decision.key), state, 0.0)
        state = order.handle(Committed(len(sent)), state, 0.0)
    return _mean(sent), missed
