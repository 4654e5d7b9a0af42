"""Members that come and go: workers are lost, return and arrive, and training goes on. Our own design.

Parts: who is a member (`crates/proto/src/members`), steps that count for all or for none (`exchange.member`),
samples in one global order (`data.sampler`), joining and checkpoints (`tweed.elastic`). Faults are a value
(`testbed.faults`), the same for members that run and for virtual ones.

What is to be shown: a loss costs a step a fraction of a second where torchft waits for a timeout, and the
model is the one of a run in which nobody dies; who joins, and checkpoints, hold up nobody. In a testbed of
100 Mbit/s with gradients that are computed by a sleep, and on loopback with a model that is trained.
Simulated members are in `tests/simulate/elastic_soak.py` and in `crates/sim/examples/members.rs`.

contenders        members that are compared
member_runs       members in a testbed that faults befall, and what a join costs
watched           what the lives of members write, and who is in, from the launcher
training          members that faults befall, and the model of a run in which nobody dies
overhead          what it costs to be members where nobody is lost
checkpoints       how long a checkpoint holds a loop up
torchft_members   torchft's members, which the same befalls
report            goals and tables
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tweed.errors import NoTestbed
from tweed.report.notes import Notes
from tweed.systems import Headline, System
from tweed.systems.elastic import checkpoints, member_runs, torchft_members, training
from tweed.systems.elastic.contenders import OURS, SETTINGS
from tweed.systems.elastic.overhead import SCALES, overhead
from tweed.systems.elastic.report import study
from tweed.testbed.faults import Plan

MB = 10**6
_MEAN_S = 0.5  # between kills of members that train


@dataclass(frozen=True, slots=True)
class Config:
    """How much is measured.

    Attributes:
      strikes: by number of workers, how many of each.
      compute_s: of a step, and of one with a join.
      numel: of the gradient, and of one with a join.
      steps: in each round of those that nothing befalls.
      ballast: bytes of state that one and four donors give.
      kills: by task and type of numbers, how many members train, and of how many kills.
      torchft_kills: of one of four.
      checkpoint_bytes, rounds: of checkpoints; as many rounds of steps that nothing befalls, and of replays.
    """

    strikes: Mapping[int, Mapping[str, int]]
    compute_s: tuple[float, float]
    numel: tuple[int, int]
    steps: int
    ballast: int
    kills: Mapping[tuple[str, str], tuple[int, int]]
    torchft_kills: int
    checkpoint_bytes: int
    rounds: int


DIGITS = [("digits", "float64"), ("digits", "float32")]
FULL = Config(
    {4: {"kill": 50, "stop": 10, "cut": 10}, 8: {"kill": 50, "two at once": 25, "stop": 10, "cut": 10}},
    (0.1, 1.0), (250_000, 6_250_000), 40, 75 * MB,
    dict.fromkeys(DIGITS, (8, 500)) | {("fashion-mnist", "float32"): (4, 20)}, 20, 100 * MB, 10,
)  # fmt: skip
QUICK = Config(
    {4: {"kill": 4, "stop": 1, "cut": 1}}, (0.1, 0.3), (250_000, 625_000), 10, MB,
    dict.fromkeys(DIGITS, (4, 6)), 2, 20 * MB, 3,
)  # fmt: skip


def experiment(notes: Notes, quick: bool) -> None:
    """Measures what is not in the notes. Cost: an hour of two cores; quick: five minutes."""
    config = QUICK if quick else FULL
    for workers, counts in config.strikes.items():
        strikes = member_runs.strikes(workers, counts, seed=workers)
        _struck(notes, OURS, workers, strikes, config)
    kills = member_runs.strikes(4, {"kill": config.torchft_kills}, seed=4)
    for side, timeouts in SETTINGS.items() if torchft_members.is_there() else ():
        _struck(notes, side, 4, kills, config, torchft_members.program(timeouts))
    (_, numel), (compute_s, joined_s) = config.numel, config.compute_s
    _in_testbed(notes, "join", lambda: member_runs.joined(numel, joined_s, joiner_mbit=25))
    for donors in (1, 4):
        _in_testbed(
            notes, f"{donors} donors", partial(member_runs.donated, donors, config.ballast, compute_s)
        )
    rounds = max(2, config.rounds // 3)
    for scale in SCALES:
        kind = "unharmed" if scale == 1 else f"unharmed, 1/{scale}"
        _in_testbed(notes, kind, partial(overhead, 4, rounds, config.steps, scale))
    for (task, dtype), (members, count) in config.kills.items():
        _trained(notes, task, dtype, members, count)
    if not notes.has(kind="replay"):
        notes.log("results replayed")
        notes.add({"kind": "replay", **training.replayed("fashion-mnist", 16, 10 * config.rounds)})
    _checkpoints(notes, config)


def _struck(
    notes: Notes,
    side: str,
    workers: int,
    strikes: list[member_runs.Strike],
    config: Config,
    program: member_runs.Program | None = None,
) -> None:
    facts = {"kind": "struck", "side": side, "workers": workers}
    if notes.has(**facts):
        return
    notes.log(f"{workers} workers, {len(strikes)} strikes: {side}")
    try:
        found = list(member_runs.lateness(workers, strikes, config.numel[0], config.compute_s[0], program))
    except NoTestbed as error:
        notes.log(f"not measured: {error}")
        return
    for line in found:
        notes.add({**facts, **line})


def _in_testbed(notes: Notes, kind: str, measure: Callable[[], dict[str, Any]]) -> None:
    if notes.has(kind=kind):
        return
    notes.log(kind)
    try:
        notes.add({"kind": kind, **measure()})
    except NoTestbed as error:
        notes.log(f"not measured: {error}")


def _trained(notes: Notes, task: str, dtype: str, members: int, kills: int) -> None:
    if notes.has(kind="trained", task=task, type=dtype):
        return
    import torch

    spared = [training.SPARED]
    plan = Plan.drawn(members, {"kill": kills}, seed=members, mean_s=_MEAN_S, spared=spared)
    notes.log(f"{members} members train on {task}, {kills} kills, {dtype}")
    found = training.compared(members, plan, getattr(torch, dtype), task)
    notes.add({"kind": "trained", "task": task, "type": dtype, "members": members, "kills": kills, **found})


def _checkpoints(notes: Notes, config: Config) -> None:
    if notes.has(kind="checkpoints"):
        return
    notes.log(f"checkpoints of {config.checkpoint_bytes // MB} MB by 4 ranks")
    found = checkpoints.held_up(4, config.checkpoint_bytes, config.rounds)
    notes.add({"kind": "checkpoints", "bytes": config.checkpoint_bytes, "seconds": found})


SYSTEM = System(
    "Members that come and go",
    "own design, decisions 38 and 40",
    "Elastic(2, 8)",
    experiment,
    study,
    headline=Headline(
        "own design, no paper",
        "the model within {} of a run without kills, after 500; a join makes steps {} as long",
        (
            "digits, float64: the model within 1e-12 of a run without kills",
            "a join: the median step at most 1.3 times one before",
        ),
        "Spot machines: workers die, return and join while training goes on.",
    ),
)
