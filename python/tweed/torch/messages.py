"""Messages over a group's links for tweed's own use, apart from torch's; and the plan measured by them.

Each call waits for its end. `watch` is called some times a second meanwhile; what it raises ends the wait.

Before it plans, rank 0 exchanges a few messages with a few of the ranks that it reaches over wires; it plans
for the slowest, and sends the plan to all. A probe so short is coarse: it tells a long link from a short one,
100 Mbit/s from 10."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tweed.collective import Links, Plan, plan
from tweed.errors import DeadlineExceeded
from tweed.torch import engine
from tweed.torch.engine import Operation
from tweed.torch.flight import Flight
from tweed.torch.host_memory import Call

if TYPE_CHECKING:
    from tweed._core import Group


Watch = Callable[[], None]

_TAG = 2**32 - 1  # no tag of torch's
_SLICE_S = 0.25


def _nobody() -> None:
    """Watches nothing."""


def send(group: Group, rank: int, message: Tensor, watch: Watch = _nobody) -> None:
    """Sends a contiguous CPU tensor; returns when it may be changed. Raises as `Flight.wait` does."""
    _run(group, Call(Operation.SEND, rank, _TAG).describe(message).read(message), watch)


def receive(group: Group, rank: int, message: Tensor, watch: Watch = _nobody) -> Tensor:
    """Fills `message` with what `rank` sends, of the same shape and dtype, and returns it."""
    _run(group, Call(Operation.RECV, rank, _TAG).describe(message).write(message), watch)
    return message


def barrier(group: Group) -> None:
    """Returns when all ranks have called it."""
    nothing = torch.empty(0)
    _run(group, Call(Operation.BARRIER).describe(nothing), _nobody)


def _run(group: Group, call: Call, watch: Watch) -> None:
    from tweed import _core

    flight = Flight(engine.table(_core.engine_table()), group.address(), call)
    while True:
        try:
            return flight.wait(_SLICE_S)
        except DeadlineExceeded:
            if flight.done():  # its own deadline has passed, not just this slice
                raise
        watch()


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


def agree(group: Group, overrules: Mapping[str, str], watch: Watch) -> Plan:
    """Measures, plans, and has all ranks of `group` run by the plan. All ranks must call it.

    Args:
      group: a new one.
      overrules: builders by collective that are not chosen.
      watch: called some times a second; what it raises ends it. A rank that has not come to the group at all
        is no part of it, so the group cannot tell of it.
    """
    chosen = _lead(group, overrules, watch) if group.rank == 0 else _follow(group, watch)
    group.adopt(chosen.rows())
    return chosen


def _lead(group: Group, overrules: Mapping[str, str], watch: Watch) -> Plan:
    wires = [rank for rank, link in enumerate(group.links) if link not in ("self", "shm")][:_PEERS]
    probes = []
    for rank in range(1, group.size):
        send(group, rank, torch.tensor([rank in wires]), watch)
        if rank in wires:
            probes.append(_probe(group, rank, watch))
    chosen = plan(group.size, links_of(probes), overrules)
    text = torch.frombuffer(bytearray(chosen.to_json().encode()), dtype=torch.uint8)
    for rank in range(1, group.size):
        send(group, rank, torch.tensor([len(text)]), watch)
        send(group, rank, text, watch)
    return chosen


def _follow(group: Group, watch: Watch) -> Plan:
    if receive(group, 0, torch.empty(1, dtype=torch.bool), watch).item():
        _echo(group, watch)
    length = int(receive(group, 0, torch.empty(1, dtype=torch.int64), watch).item())
    text = receive(group, 0, torch.empty(length, dtype=torch.uint8), watch)
    return Plan.from_json(bytes(text.tolist()).decode())


def _probe(group: Group, rank: int, watch: Watch) -> Probe:
    nothing, something = torch.empty(1), torch.empty(_LONG_BYTES, dtype=torch.uint8)
    short = [_round_trip(group, rank, nothing, watch) for _ in range(_SHORT)]
    return Probe(short, [_round_trip(group, rank, something, watch) for _ in range(2)])


def _round_trip(group: Group, rank: int, message: Tensor, watch: Watch) -> float:
    began = time.monotonic()
    send(group, rank, message, watch)
    receive(group, rank, torch.empty(1), watch)
    return time.monotonic() - began


def _echo(group: Group, watch: Watch) -> None:
    for message in [torch.empty(1)] * _SHORT + [torch.empty(_LONG_BYTES, dtype=torch.uint8)] * 2:
        receive(group, 0, message, watch)
        send(group, 0, torch.empty(1), watch)
