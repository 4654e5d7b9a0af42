"""`run`: one schedule, once, over a virtual network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict, Unpack

from tweed import _core
from tweed.errors import UsageError


class Conditions(TypedDict, total=False):
    """What may be asked of a run besides its seed. Ranks that a mapping leaves out are as usual.

    `piece`: bytes of the pieces that chunks are cut into; None (the default): chunks stay whole.
    `window`: how many pieces of a chunk are under way at once (default 4).
    `delays`: seconds by which ranks start late.
    `slow`: how many times as long ranks take for arithmetic and for sending.
    `deaths`: seconds after which ranks die.
    `detection_s`: seconds after which the others learn of a death (default 1).
    `jitter_s`, `late_s`: each message, each rank's start, comes late by a random time up to this (default 0).
    `compute`: bytes per second that a rank reads to add and copy; None (the default): that takes no time.
    `message_s`: seconds that a rank is busy with each message that it sends or takes in, one after the other.
    `header`: bytes that each packet carries besides its payload; `packet`: the payload of one; None (the
    default): a message is one packet, as under flow control by messages.
    `hosts`: the host of each rank; empty (the default): every rank has its own. Ranks of one host read each
    other's memory, and a signal between them takes `local_latency_s` (default 1e-6).
    `log`: keep every message. `record`: keep the trace of this rank's executor, which `replay` reads.
    """

    piece: int | None
    window: int
    delays: Mapping[int, float]
    slow: Mapping[int, float]
    deaths: Mapping[int, float]
    detection_s: float
    jitter_s: float
    late_s: float
    compute: int | None
    message_s: float
    header: int
    packet: int | None
    hosts: Sequence[int]
    local_latency_s: float
    log: bool
    record: int | None


_USUAL: dict[str, Any] = {
    "piece": None,
    "window": 4,
    "delays": {},
    "slow": {},
    "deaths": {},
    "detection_s": 1.0,
    "jitter_s": 0.0,
    "late_s": 0.0,
    "compute": None,
    "message_s": 0.0,
    "header": 0,
    "packet": None,
    "hosts": [],
    "local_latency_s": 1e-6,
    "log": False,
    "record": None,
}


class Lost(NamedTuple):
    """A rank gave up for want of a peer: live it raises `PeerLost`. `at_s` is in seconds since the start."""

    rank: int
    peer: int
    at_s: float


class Crossing(NamedTuple):
    """One message: piece `slice` of send number `send`. Times are in seconds since the start.

    `left_s` is when its first byte left, `arrived_s` when its last one arrived.
    """

    send: int
    slice: int
    src: int
    dst: int
    bytes: int
    left_s: float
    arrived_s: float


@dataclass(frozen=True)
class Result:
    """What came of a run. Times are in seconds since the start.

    `finished_s` has one entry per rank, None where it has no result. `died_s` says who died and when, `lost`
    who gave up, about whom, and when. `link_bytes` are the bytes that arrived over each directed link,
    headers left out.
    `events` counts the simulator's own steps. `log` and `trace` are there if they were asked for.
    """

    finished_s: tuple[float | None, ...]
    lost: tuple[Lost, ...]
    died_s: Mapping[int, float]
    link_bytes: Mapping[tuple[int, int], int]
    events: int
    log: tuple[Crossing, ...] = field(default=(), repr=False)
    trace: str | None = field(default=None, repr=False)

    @property
    def seconds(self) -> float | None:
        """When the last rank had its result; None if any has none."""
        times = [at for at in self.finished_s if at is not None]
        return max(times) if len(times) == len(self.finished_s) else None


def run(
    schedule: _core.Schedule,
    numbytes: int,
    topology: _core.Topology,
    *,
    seed: int = 0,
    **conditions: Unpack[Conditions],
) -> Result:
    """Runs `schedule` once over `topology`, with the executor that runs live, and checks the result.

    Args:
      schedule: what to run.
      numbytes: the size of the whole buffer, all chunks together.
      topology: the links. A link serves one message at a time, in the order of arrival; of several side by
        side a message takes the one that is free first. A message goes on over its route as soon as its
        first byte has come. A switch with a capacity takes messages through in the same way, before the
        link that leaves it.
      seed: draws what `jitter_s` and `late_s` leave to chance.
      conditions: see `Conditions`.

    Returns:
      Who finished when, what crossed each link, who was lost.

    Raises:
      UsageError: conditions that cannot be, or links of bandwidth 0 that leave ranks waiting for ever.
      ScheduleError: the schedule uses a link that the topology lacks.

    Cost: about a million events per second, of which each message takes five.
    Source: own design; the network is the usual latency and bandwidth model with queues.
    """
    unknown = sorted(conditions.keys() - _USUAL.keys())
    if unknown:
        raise UsageError(f"there is no condition {unknown[0]!r}; use one of {', '.join(_USUAL)}")
    asked = {**_USUAL, **conditions, "seed": seed}
    ends, link_bytes, log, trace, events = _core.simulate(schedule, numbytes, topology, asked)
    ranked = list(enumerate(ends))
    return Result(
        finished_s=tuple(at if what == "finished" else None for what, at, _ in ends),
        lost=tuple(Lost(rank, peer, at) for rank, (_, at, peer) in ranked if peer is not None),
        died_s={rank: at for rank, (what, at, _) in ranked if what == "died"},
        link_bytes=link_bytes,
        events=events,
        log=tuple(Crossing(*fields) for fields in log),
        trace=trace,
    )
