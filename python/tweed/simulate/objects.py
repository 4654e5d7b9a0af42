"""Objects on a virtual network: who feeds whom, and which tree sums what, as the live planner decides it.

    links = Topology.complete(17, bandwidth=125_000_000, latency_s=50e-6)
    ids = tuple(range(1, 17))
    calls = [put(0.05 * i, i, object=i, numbytes=12_500_000) for i in ids]       # sources, 50 ms apart
    calls += [reduce(0.0, 0, target=99, ids=ids), *(get(0.0, i, object=99) for i in ids)]
    result = run(links, calls, deaths={3: 0.4})
    result.got_s[0, 99], result.included[99]       # when process 0 had the sum, and the ids of each range

Nothing sleeps, and the same arguments give the same run. Every value that comes out is checked
against the ids that are said to be in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict, Unpack

from tweed import _core
from tweed.errors import UsageError


@dataclass(frozen=True, slots=True)
class Call:
    """What a process calls, `at_s` seconds after the start; made by `put`, `get`, `reduce` and `delete`."""

    what: str
    at_s: float
    process: int
    object: int
    size: int = 0
    ids: Sequence[int] = ()
    count: int = 0
    mode: str = "whole"
    rule: str = "measured"


def put(at_s: float, process: int, *, object: int, numbytes: int) -> Call:
    """An object of so many bytes is there. Objects are numbers from 0 to 2**128 - 1."""
    return Call("put", at_s, process, object, numbytes)


def get(at_s: float, process: int, *, object: int) -> Call:
    """A copy is wanted; there may be no object yet."""
    return Call("get", at_s, process, object)


def delete(at_s: float, process: int, *, object: int) -> Call:
    """Nobody is to have it any more."""
    return Call("delete", at_s, process, object)


def reduce(
    at_s: float,
    process: int,
    *,
    target: int,
    ids: Sequence[int],
    count: int | None = None,
    mode: str = "whole",
    rule: str = "measured",
) -> Call:
    """The sum of the first `count` of `ids` that appear is wanted here, as `target`.

    Args:
      at_s, process: when and where.
      target: the number of the sum.
      ids: what may be summed, without repeats.
      count: None (the default): all.
      mode: "whole" sums the same ids everywhere, and what holds a source that died is summed again; with
        "ranges" what is summed stays, and ranges of the result sum different ids.
      rule: how the tree is chosen: "measured" by a model with the cost per message, "hybrid" as in Hoplite's
        repository, "degree" as in its paper.
    """
    most = len(ids) if count is None else count
    return Call("reduce", at_s, process, target, 0, tuple(ids), most, mode, rule)


class Cut(NamedTuple):
    """Two processes do not reach each other from `at_s` on, for `lasts_s` seconds.

    Both live, and neither is lost to anybody: what is on its way leaves anew afterwards.
    """

    pair: tuple[int, int]
    at_s: float
    lasts_s: float


class Conditions(TypedDict, total=False):
    """What may be asked of a run besides its seed.

    `deaths`: seconds after which processes die. `cuts`: pairs that do not reach each other for a while.
    `detection_s`: each other process learns of a death within half of this and one and a half times this
    (default 0.002).
    `message_s`: seconds that a process is busy with each message or block that it sends or takes in (default
    0).
    `jitter_s`: each message comes late by a random time up to this, in order for each pair (default 0).
    `header`: bytes that each block carries besides its payload (default 0).
    """

    deaths: Mapping[int, float]
    cuts: Sequence[Cut]
    detection_s: float
    message_s: float
    jitter_s: float
    header: int


_USUAL: dict[str, Any] = {
    "deaths": {},
    "cuts": (),
    "detection_s": 0.002,
    "message_s": 0.0,
    "jitter_s": 0.0,
    "header": 0,
}


class Part(NamedTuple):
    """Bytes `start` to `end` of a sum, and the ids that it sums there, ascending."""

    start: int
    end: int
    ids: tuple[int, ...]


class Failed(NamedTuple):
    """A call that has no result, and why."""

    process: int
    object: int
    why: str


class Proof(NamedTuple):
    """The orders of one reduce as a schedule that the checker has proven.

    Rank 0 is the destination, rank `1 + i` the source `ids[i]`; chunk `k` is bytes `edges[k]` to
    `edges[k + 1]`.
    """

    schedule: _core.Schedule
    edges: tuple[int, ...]


@dataclass(frozen=True)
class Result:
    """What came of a run.

    `got_s`: seconds after which a process had an object that it asked for, by process and object.
    `included`: the parts of each sum. `waiting`: gets and reduces of living processes that never ended, such
    as those of an object that nobody has any more. `pair_bytes`: payload from process to process.
    `taken_bytes`: payload of an object that a process took in, what it had to throw away too. `most_fed`: the
    most others that one copy fed at a time. `proofs`: of the sums that one shard planned alone.
    """

    got_s: Mapping[tuple[int, int], float]
    included: Mapping[int, tuple[Part, ...]]
    failed: tuple[Failed, ...]
    waiting: tuple[tuple[int, int], ...]
    pair_bytes: Mapping[tuple[int, int], int] = field(repr=False)
    taken_bytes: Mapping[tuple[int, int], int] = field(repr=False)
    most_fed: int
    pulls: int
    messages: int
    events: int
    proofs: Mapping[int, Proof] = field(repr=False)

    @property
    def seconds(self) -> float | None:
        """When the last call was answered; None if one was not."""
        return None if self.waiting or self.failed else max(self.got_s.values(), default=0.0)


def run(
    topology: _core.Topology,
    calls: Iterable[Call],
    *,
    seed: int = 0,
    **conditions: Unpack[Conditions],
) -> Result:
    """Carries out `calls` among the ranks of `topology`.

    Args:
      topology: the links. Blocks between two processes take the path with the fewest hops, over switches
        where there are any; messages take the latency only.
      calls: in any order.
      seed: of what is left to chance.
      conditions: see `Conditions`.

    Raises:
      UsageError: calls or conditions that cannot be, or processes that no links join.

    Cost: a few million events per second, of which each block takes five.
    Source: Zhuang et al. 2021 (Hoplite); repair by ranges and the choice of shape and block are our own
    (docs/decisions/0035-objects.md).

    Example:
      >>> from tweed.collective import Topology
      >>> links = Topology.complete(3, bandwidth=1_000_000, latency_s=0.0)
      >>> calls = [put(0.0, 1, object=1, numbytes=100_000), put(0.1, 2, object=2, numbytes=100_000)]
      >>> result = run(links, [*calls, reduce(0.0, 0, target=9, ids=[1, 2])])
      >>> result.included[9]
      (Part(start=0, end=100000, ids=(1, 2)),)
    """
    unknown = sorted(conditions.keys() - _USUAL.keys())
    if unknown:
        raise UsageError(f"there is no condition {unknown[0]!r}; use one of {', '.join(_USUAL)}")
    asked = {**_USUAL, **conditions, "seed": seed}
    got, included, failed, waiting, pairs, taken, counts, proofs = _core.simulate_objects(
        topology, list(calls), asked
    )
    most_fed, pulls, messages, events = counts
    return Result(
        got_s={(process, object): at for process, object, at in got},
        included={
            target: tuple(Part(start, end, tuple(ids)) for start, end, ids in parts)
            for target, parts in included.items()
        },
        failed=tuple(Failed(*one) for one in failed),
        waiting=tuple(waiting),
        pair_bytes=pairs,
        taken_bytes=taken,
        most_fed=most_fed,
        pulls=pulls,
        messages=messages,
        events=events,
        proofs={target: Proof(schedule, tuple(edges)) for target, schedule, edges in proofs},
    )
