"""All-reduces of several sides between the same ranks: builders, each in a group of its own, and Gloo."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from statistics import median

import torch
import torch.distributed as dist

from bench.punctual import LATE_S, Call, Turns, rounds
from bench.run import TIMEOUT_S, Row
from tweed.collective import Plan, build
from tweed.collective.chooser import fitting
from tweed.collective.planning import Candidate
from tweed.collective.planning.plans import Pick, digest
from tweed.collective.topology import Topology
from tweed.systems.harness.benchmark import Contender
from tweed.testbed import LiveTopologyNetwork, Ranks

Key = tuple[str, int]
"""A side and the bytes of a buffer."""

_SLOW = ("exact",)


def tried(network: Topology, only: Collection[str] = ()) -> Iterator[Candidate]:
    """What can be built for all-reduce on a network, but for what a solver searches: every rank builds anew.

    Args:
      only: builders' names; empty: all.
    """
    for row in fitting("all_reduce", network):
        if row.name in only or (not only and row.name not in _SLOW):
            for pieces in row.pieces:
                yield Candidate(row.name, pieces, build("all_reduce", row.name, network, pieces), 0.0)


def plan_of(candidate: Candidate, network: Topology) -> Plan:
    """A plan that runs every all-reduce by one builder."""
    why, mark = "to be measured", digest(candidate.schedule)
    pick = Pick("all_reduce", None, candidate.builder, why, mark, candidate.pieces)
    return Plan(network.ranks, (pick,), network)


def timed(
    bed: LiveTopologyNetwork, plans: Mapping[str, str], keys: Sequence[Key], turns: Turns
) -> dict[Key, list[list[Call]]]:
    """By side and size, each rank's calls. A side is a plan as text; without any text, Gloo."""
    with Ranks(_calls, bed.size, plans, keys, turns, backend="tweed", bed=bed) as ranks:
        by_rank = ranks.join(TIMEOUT_S)
    return {key: [calls[key] for calls in by_rank] for key in by_rank[0]}


def _calls(
    rank: int, size: int, plans: Mapping[str, str], keys: Sequence[Key], turns: Turns
) -> dict[Key, list[Call]]:
    from tweed.torch import Options

    groups = {
        side: dist.new_group(backend="tweed", pg_options=Options(plan=text))
        if text
        else dist.new_group(backend="gloo")
        for side, text in plans.items()
    }
    contenders = [
        Contender(str(at), _call(groups[side], numbytes)) for at, (side, numbytes) in enumerate(keys)
    ]
    found = rounds(contenders, turns)
    return {key: found[str(at)] for at, key in enumerate(keys)}


def _call(group: dist.ProcessGroup, numbytes: int) -> Callable[[], object]:
    tensor = torch.zeros(max(1, numbytes // 4))
    return lambda: dist.all_reduce(tensor, group=group)


def row_of(by_rank: Sequence[Sequence[Call]]) -> Row:
    """A call lasts from when its last rank began until its last one ended; `late_calls` began late."""
    calls = list(zip(*by_rank, strict=True))
    began = [max(call.began_s for call in ranks) for ranks in calls]
    lasted = [max(call.ended_s for call in ranks) - late for ranks, late in zip(calls, began, strict=True)]
    return {
        "calls": len(calls),
        "median_s": float(f"{median(lasted):.4g}"),
        "least_s": float(f"{min(lasted):.4g}"),
        "most_s": float(f"{max(lasted):.4g}"),
        "late_calls": sum(late > LATE_S for late in began),
    }
