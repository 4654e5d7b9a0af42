"""Members in a testbed that faults befall, one after the other: how late the next step is; what a join costs.

Each rank's life is a child process (`tweed.testbed.restarts`); gradients are computed by a sleep. Times are
of the system's monotonic clock, so those of one process can be taken from those of another.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.data.sampler import GlobalOrder, Sampler
from tweed.elastic import ElasticRun
from tweed.elastic.state import State, Stateful, of_objects
from tweed.files import write_atomic
from tweed.systems.elastic.watched import Step, Watched, Written, control
from tweed.testbed import Network, Ranks, opened
from tweed.testbed.fault_injector import FaultInjector
from tweed.testbed.faults import Plan
from tweed.testbed.live_network import LiveNetwork
from tweed.testbed.restarts import restarted

NETWORK = Network.parse("rate=100mbit")
#: Members that give a state to another one, which hears more than four of them can send.
DONORS = "up.rate=20mbit,down.rate=100mbit"
FOUNDERS = 4  # of a run that another member joins
_BATCH = 64


@dataclass(frozen=True, slots=True)
class Job:
    """What each life trains, and where it writes what happens.

    Attributes:
      founders: members that begin.
      most: members that there may be, each a rank.
      numel: of the gradient.
      compute_s: of a step.
      ballast: bytes of state that no step changes.
      joiner_mbit: what each member gives to who joins; None: what its links take.
    """

    folder: Path
    founders: int
    most: int
    numel: int
    compute_s: float
    ballast: int = 0
    joiner_mbit: float | None = None


#: What a rank runs: `fn(rank, size, job)`.
Program = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Strike:
    """Faults that cost some members.

    Attributes:
      what: in a word or two.
      plan: the faults.
      lost: the members that the others go on without.
    """

    what: str
    plan: Plan
    lost: tuple[int, ...]


def strikes(members: int, counts: Mapping[str, int], seed: int) -> list[Strike]:
    """So many of each: "kill" of one, "two at once", "stop", and "cut" from all others, both for four
    seconds. Victims come in turns, from rank 0 on, at moments that are drawn."""
    plans = {
        "kill": "after {after}s kill {one}",
        "two at once": "after {after}s kill {one},{other}",
        "stop": "after {after}s stop {one} for 4s",
        "cut": "after {after}s cut {one}-{other} for 4s",
    }
    found = []
    for what, count in counts.items():
        drawn = Plan.drawn(members, {"kill": count}, seed=seed, mean_s=0.15)
        for number, fault in enumerate(drawn.faults):
            one, other = number % members, (number + 1) % members
            words = {"after": round(fault.after_s, 3), "one": one}
            others = [rank for rank in range(members) if rank != one] if what == "cut" else [other]
            parts = [plans[what].format(**words | {"after": 0 if place else words["after"], "other": rank})
                     for place, rank in enumerate(others)]  # fmt: skip
            lost = (one, other) if what == "two at once" else (one,)
            found.append(Strike(what, Plan.parse("; ".join(parts)), lost))
    return found


def lateness(
    workers: int, strikes: Sequence[Strike], numel: int, compute_s: float, program: Program | None = None
) -> Iterator[dict[str, Any]]:
    """Strikes one after the other, each when all members are in again.

    Args:
      program: what ranks run; None: an `ElasticRun`. It may be for one rank more, which nothing befalls.

    Returns: for each `what`, `step_s` (a step's median), `late_s` (by how much later than expected all
      survivors had counted the first step without the lost: expected is a median step after the one before)
      and `back_s` (until all were in again: after the kill, or after the end of what lasts).

    Raises: NoTestbed.
    """
    run: Program = program or member
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), workers, workers, numel, compute_s)
        ranks = workers + (program is not None)
        with opened(NETWORK, ranks) as bed, Ranks(run, ranks, job, bed=bed) as started:
            yield from _struck(Watched(started, job.folder, workers), bed, workers, strikes)


def _struck(
    watched: Watched, bed: LiveNetwork, workers: int, strikes: Sequence[Strike]
) -> Iterator[dict[str, Any]]:
    plain: list[float] = []
    late: dict[str, list[tuple[Step, Step, float]]] = {}
    since = 0.0
    for strike in strikes:
        watched.settled(workers, since)
        plain += [step.end - step.begin for step in watched.steps(0)[-3:]]
        with FaultInjector(strike.plan, bed.size, watched.pid, bed=bed, folder=watched.folder) as injector:
            watched.wait(lambda injector=injector: injector.turn(0) is not None)  # type: ignore[misc]
            since = injector.log[0][0]
            while injector.turn(0) is not None:
                pass  # those of the same moment
            first = watched.counted_without(strike.lost, workers, since)
            before = watched.before([rank for rank in range(workers) if rank not in strike.lost], since)
            watched.wait(lambda injector=injector: injector.turn(0) is None and injector.done)  # type: ignore[misc]
        since = max(since, time.monotonic() if strike.what in ("stop", "cut") else since)
        watched.settled(workers, since, 1)
        late.setdefault(strike.what, []).append((before, first, time.monotonic() - since))
    watched.end()
    step_s = statistics.median(plain)
    for what, found in late.items():
        late_s = [
            first.end - before.end - (first.number - before.number) * step_s for before, first, _ in found
        ]
        back_s = [back for *_, back in found]
        yield {"what": what, "workers": workers, "step_s": step_s, "late_s": late_s, "back_s": back_s}


def joined(
    numel: int, compute_s: float, founders: int = FOUNDERS, network: Network = NETWORK, **options: Any
) -> dict[str, Any]:
    """Another member joins those who train.

    Args:
      options: of the `Job`.

    Returns: `plain_s` of a step before, `spans_s` of steps while it joins, `joined_s` until it is in,
      `given_s` of that from its question until it has the state,
      `copied_s` that a copy of model and optimizer takes for which all wait, and whether what all keep is
      `equal` in the end, bit for bit.

    Raises: NoTestbed.
    """

    def drive(watched: Watched) -> dict[str, Any]:
        watched.wait(lambda: all(len(watched.steps(rank)) >= 8 for rank in range(founders)))
        plain = [step.end - step.begin for step in watched.steps(0)[2:]]
        begin = time.monotonic()
        write_atomic(watched.folder / "join", "")
        watched.settled(founders + 1, begin, 2)
        given_s, copied_s, digests = zip(*watched.end(), strict=True)
        during = [step for step in watched.steps(0) if step.end > begin]
        together = next(step.end for step in during if step.members > founders)
        spans = [step.end - step.begin for step in during if step.end <= together]
        times = {"plain_s": statistics.median(plain), "spans_s": spans, "joined_s": together - begin}
        costs = {"given_s": given_s[founders], "copied_s": max(copied_s)}
        return times | costs | {"equal": len(set(digests)) == 1}

    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), founders, founders + 1, numel, compute_s, **options)
        with opened(network, job.most) as bed, Ranks(member, job.most, job, bed=bed) as ranks:
            return drive(Watched(ranks, job.folder))


def donated(donors: int, state_bytes: int, compute_s: float) -> dict[str, Any]:
    """As `joined`, of a state that members behind 20 Mbit/s give: steps are small, and all that their links
    have is the joiner's."""
    return joined(1000, compute_s, donors, Network.parse(DONORS), ballast=state_bytes)


# What a rank does.


def member(rank: int, size: int, job: Job) -> Any:
    """Its lives; a rank that is no founder begins when it is told to."""
    while rank >= job.founders and not (job.folder / "join").exists():
        time.sleep(0.05)
    return restarted(_life, job.folder, rank, job)


def _life(life: int, rank: int, job: Job) -> tuple[float, float, bytes]:
    """Trains until it is over, and writes each step down. Returns how long it took to get the state of those
    that it joined, how long a copy takes that all wait for, and a digest of what it keeps."""
    elastic = control(life, rank, job.founders, job.most, job.folder, joiner_mbit=job.joiner_mbit)
    model = torch.nn.ParameterList([torch.zeros(job.numel)])
    optimizer = torch.optim.Adam(model, lr=1e-3)
    ballast = torch.rand(job.ballast // 4, generator=torch.Generator().manual_seed(1))
    state = torch.nn.ParameterList([torch.nn.Parameter(ballast, requires_grad=False)])
    keep: dict[str, Stateful] = {"model": model, "optimizer": optimizer, "ballast": state}
    asked = time.monotonic()
    run = ElasticRun(elastic, Sampler(GlobalOrder(60_000), _BATCH), keep)
    given_s = time.monotonic() - asked
    gradient = torch.rand(job.numel, generator=torch.Generator().manual_seed(2))

    def computed(samples: Sequence[int]) -> Tensor:
        time.sleep(job.compute_s * len(samples) * len(run.members) / _BATCH)
        return gradient

    with Written(job.folder, rank, life) as written:
        while not written.over(run.steps_done):
            begin = time.monotonic()
            model[0].grad = run.step(computed)
            optimizer.step()
            written.step(run.steps_done, begin, len(run.members))
    copied_s = _copied_s(4 * model[0].numel() * 4)
    (digest,) = State(of_objects(keep)).digests()
    run.finish()
    elastic.close()
    return given_s, copied_s, digest


def _copied_s(count: int) -> float:
    """All members wait for rank 0 to broadcast so many bytes."""
    state = torch.zeros(count, dtype=torch.uint8)
    dist.barrier()
    begin = time.monotonic()
    dist.broadcast(state, 0)
    dist.barrier()
    return time.monotonic() - begin
