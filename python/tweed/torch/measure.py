"""What the wires of a new group can do, measured by messages over them, and a plan that fits.

Rank 0 exchanges a few messages with a few of the ranks that it reaches over wires, plans for the slowest, and
sends the plan to all. A probe so short is coarse: it tells a long link from a short one, 100 Mbit/s from 10.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tweed.collective import Links, Plan, plan
from tweed.torch.messages import Watch, receive, send

if TYPE_CHECKING:
    from tweed._core import Group

_PEERS = 4
_SHORT, _LONG_BYTES = 5, 128 * 2**10  # round trips, and the bytes of the two that carry something


@dataclass(frozen=True)
class Probe:
    """Round trips to one rank, in seconds: of empty messages, and with `_LONG_BYTES` on the way out."""

    short_s: Sequence[float]
    long_s: Sequence[float]


def links_of(probes: Sequence[Probe]) -> Links:
    """The slowest of the links that were probed."""
    latencies = [median(probe.short_s) / 2 for probe in probes]
    carried = [max(min(probe.long_s) - median(probe.short_s), 1e-6) for probe in probes]
    return Links(latency_s=max(latencies), bandwidth=_LONG_BYTES / max(carried))


@dataclass(frozen=True)
class _Watched:
    """Messages of a group, and what is called while they are waited for."""

    group: Group
    watch: Watch

    def send(self, rank: int, message: Tensor) -> None:
        send(self.group, rank, message, self.watch)

    def receive(self, rank: int, message: Tensor) -> Tensor:
        return receive(self.group, rank, message, self.watch)


def agree(group: Group, overrules: Mapping[str, str], watch: Watch) -> Plan:
    """Measures, plans, and has all ranks of `group` run by the plan. All ranks must call it.

    Args:
      group: a new one.
      overrules: builders by collective that are not chosen.
      watch: called some times a second; what it raises ends it. A rank that has not come to the group at all
        is no part of it, so the group cannot tell of it.
    """
    watched = _Watched(group, watch)
    chosen = _lead(watched, overrules) if group.rank == 0 else _follow(watched)
    group.adopt(chosen.rows())
    return chosen


def _lead(watched: _Watched, overrules: Mapping[str, str]) -> Plan:
    group = watched.group
    wires = [rank for rank, link in enumerate(group.links) if link not in ("self", "shm")][:_PEERS]
    probes = []
    for rank in range(1, group.size):
        watched.send(rank, torch.tensor([rank in wires]))
        if rank in wires:
            probes.append(_probe(watched, rank))
    chosen = plan(group.size, links_of(probes), overrules)
    text = torch.frombuffer(bytearray(chosen.to_json().encode()), dtype=torch.uint8)
    for rank in range(1, group.size):
        watched.send(rank, torch.tensor([len(text)]))
        watched.send(rank, text)
    return chosen


def _follow(watched: _Watched) -> Plan:
    if watched.receive(0, torch.empty(1, dtype=torch.bool)).item():
        _echo(watched)
    length = int(watched.receive(0, torch.empty(1, dtype=torch.int64)).item())
    text = watched.receive(0, torch.empty(length, dtype=torch.uint8))
    return Plan.from_json(bytes(text.tolist()).decode())


def _probe(watched: _Watched, rank: int) -> Probe:
    nothing, something = torch.empty(1), torch.empty(_LONG_BYTES, dtype=torch.uint8)
    short = [_round_trip(watched, rank, nothing) for _ in range(_SHORT)]
    return Probe(short, [_round_trip(watched, rank, something) for _ in range(2)])


def _round_trip(watched: _Watched, rank: int, message: Tensor) -> float:
    began = time.monotonic()
    watched.send(rank, message)
    watched.receive(rank, torch.empty(1))
    return time.monotonic() - began


def _echo(watched: _Watched) -> None:
    for message in [torch.empty(1)] * _SHORT + [torch.empty(_LONG_BYTES, dtype=torch.uint8)] * 2:
        watched.receive(0, message)
        watched.send(0, torch.empty(1))
