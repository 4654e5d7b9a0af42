"""Broadcasts and sums of objects, simulated: how near each is to the time of its bytes over one link, S/B."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tweed.collective import Topology
from tweed.simulate import objects

#: Payload bytes per second, seconds, and bytes: 10 Gbit/s, as in the paper, and S/B of 0.1 s.
RATE, LATENCY_S, MESSAGE_S, SIZE = 1_250_000_000, 50e-6, 5e-6, 125_000_000
#: Bytes of what is pipelined when nothing goes wrong, as in the paper.
WHOLE_SIZE = 1 << 30
S_B = SIZE / RATE
DETECTION_S = 0.002
#: The server knows which gradients have places, and has told their workers.
_TOLD_S = 0.001
_RESULT = 0  # the number of the object that a broadcast or a sum makes; sources have those of their processes


def _links(ranks: int) -> Topology:
    return Topology.complete(ranks, bandwidth=RATE, latency_s=LATENCY_S)


def _ended(links: Topology, calls: Sequence[objects.Call], **conditions: Any) -> objects.Result:
    found = objects.run(links, calls, message_s=MESSAGE_S, detection_s=DETECTION_S, **conditions)
    assert found.seconds is not None, (found.waiting, found.failed)
    return found


def _gets(ranks: int) -> list[objects.Call]:
    return [objects.get(0.0, rank, object=_RESULT) for rank in range(1, ranks)]


def _broadcast(ranks: int, size: int = SIZE) -> list[objects.Call]:
    return [objects.put(0.0, 0, object=_RESULT, numbytes=size), *_gets(ranks)]


def _sum(
    ranks: int, gap_s: float = 0.0, spares: int = 0, mode: str = "whole", size: int = SIZE
) -> list[objects.Call]:
    """Process 0 asks for the sum of what the others have, each `gap_s` later than the one before."""
    ids = range(1, ranks)
    puts = [objects.put(gap_s * (rank - 1), rank, object=rank, numbytes=size) for rank in ids]
    wanted = objects.reduce(0.0, 0, target=_RESULT, ids=ids, count=len(ids) - spares, mode=mode)
    return [*puts, wanted]


def pipelined(ranks: int) -> Mapping[str, float]:
    """In units of S/B: a broadcast, a sum, and all-reduce; and how many objects the origin sent."""
    links, summing, s_b = _links(ranks), _sum(ranks, size=WHOLE_SIZE), WHOLE_SIZE / RATE
    spread, summed = _ended(links, _broadcast(ranks, WHOLE_SIZE)), _ended(links, summing)
    both = _ended(links, [*summing, *_gets(ranks)])
    sent = sum(numbytes for (rank, _), numbytes in spread.pair_bytes.items() if rank == 0)
    return {
        "broadcast": (spread.seconds or 0) / s_b,
        "sum": (summed.seconds or 0) / s_b,
        "all_reduce": (both.seconds or 0) / s_b,
        "origin": sent / WHOLE_SIZE,
        "most_fed": spread.most_fed,
    }


def arrivals(ranks: int, gap_s: float = 0.05) -> float:
    """Seconds from the last source's arrival to the sum, when sources come `gap_s` apart."""
    return (_ended(_links(ranks), _sum(ranks, gap_s)).seconds or 0) - gap_s * (ranks - 2)


def death(ranks: int, share: float, mode: str) -> Mapping[str, float]:
    """Seconds that a death in the middle of the tree costs, so far into a sum of all but two sources; the
    ranges of the result that sum different ids; and the time of a pipeline fill."""
    quiet = _quiet(ranks, mode)
    calls = _sum(ranks, spares=2, mode=mode)
    found = _ended(_links(ranks), calls, deaths={ranks // 2: share * quiet})
    lost_s, ranges = (found.seconds or 0) - quiet, len(found.included[_RESULT])
    return {"seconds": lost_s, "ranges": ranges, "fill_s": quiet - S_B}


@cache
def _quiet(ranks: int, mode: str) -> float:
    """Seconds of that sum when nobody dies."""
    return _ended(_links(ranks), _sum(ranks, spares=2, mode=mode)).seconds or 0


def updates(ranks: int, compute: float, count: int = 6, *, by_blocks: bool = True) -> float:
    """Asynchronous SGD: seconds per update in units of S/B, after the first two.

    Process 0 is the server, and each update sums the first half of the others' gradients, of which each takes
    `compute` S/B. With `by_blocks` the server steps as blocks come, and those whose gradients have places ask
    for the next model at once; else it steps when the sum is complete, and those that are in it get the model
    while the next sum forms.

    Cost: a run per update, each with all calls of the one before; what is known by then does not change.
    """
    links, half = _links(ranks), (ranks - 1) // 2
    gradients = {rank: rank for rank in range(1, ranks)}  # by worker: the number of what it sends next
    calls = [objects.put(0.0, rank, object=rank, numbytes=SIZE) for rank in gradients]
    ends = [0.0]
    for target in range(10_000, 10_000 + count):
        calls.append(objects.reduce(ends[-1], 0, target=target, ids=tuple(gradients.values()), count=half))
        found = _ended(links, calls)
        included = found.included[target][0].ids
        workers = [rank for rank, number in gradients.items() if number in included]
        asked_s = ends[-1] + _TOLD_S if by_blocks else found.got_s[0, target]
        model = target if by_blocks else 2 * target
        ends.append(found.got_s[0, target])
        if not by_blocks:
            calls.append(objects.put(ends[-1], 0, object=model, numbytes=SIZE))
        calls += [objects.get(asked_s, rank, object=model) for rank in workers]
        found = _ended(links, calls)
        for rank in workers:
            gradients[rank] += 100
            ready_s = found.got_s[rank, model] + compute * S_B
            put = objects.put(ready_s, rank, object=gradients[rank], numbytes=SIZE)
            calls.append(put)
    return (ends[-1] - ends[2]) / (count - 2) / S_B


def slow_receiver(ranks: int) -> float:
    """The time of a broadcast's last receiver but a slow one, over that when none has a tenth of the rate."""
    slow = ranks // 2
    rates = [RATE // 10 if rank == slow else RATE for rank in range(ranks)]
    even = _ended(_behind_switch([RATE] * ranks), _broadcast(ranks)).seconds or 0
    found = _ended(_behind_switch(rates), _broadcast(ranks))
    others = [at_s for (rank, _), at_s in found.got_s.items() if rank != slow]
    return max(others) / even


def _behind_switch(rates: Sequence[int]) -> Topology:
    switch = len(rates)
    links = [
        (one, other, rate, LATENCY_S / 2)
        for rank, rate in enumerate(rates)
        for one, other in ((rank, switch), (switch, rank))
    ]
    return Topology(switch, links)
