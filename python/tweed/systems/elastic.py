"""Members that come and go: workers are lost, return and arrive, and training goes on. Our own design.

Parts: who is a member (`crates/proto/src/members`), steps that count for all or for none (`exchange.member`),
samples in one global order (`data.sampler`), joining and checkpoints (`tweed.elastic`). Faults are a value
(`testbed.faults`), the same for members that run and for virtual ones.

What is to be shown: a loss costs a step a fraction of a second where torchft waits for a timeout, and the
model is the one of a run in which nobody dies; who joins, and checkpoints, hold up nobody. In a testbed of
100 Mbit/s with gradients that are computed by a sleep, and on loopback with a model that is trained.
Simulated members are in `tests/simulate/elastic_soak.py` and in `crates/sim/examples/members.rs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tweed.errors import NoTestbed
from tweed.experiments import member_checkpoints, member_runs, member_training, torchft_members
from tweed.experiments.notes import Notes
from tweed.systems import System
from tweed.systems.reports.elastic import OURS, study
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
      kills: how many members train on digits, and of how many kills.
      torchft_kills: of one of four.
      checkpoint_bytes, rounds: of checkpoints.
    """

    strikes: Mapping[int, Mapping[str, int]]
    compute_s: tuple[float, float]
    numel: tuple[int, int]
    kills: tuple[int, int]
    torchft_kills: int
    checkpoint_bytes: int
    rounds: int


FULL = Config(
    {4: {"kill": 50, "stop": 10, "cut": 10}, 8: {"kill": 50, "two at once": 25, "stop": 10, "cut": 10}},
    (0.1, 1.0),
    (250_000, 6_250_000),
    (8, 500),
    20,
    100 * MB,
    10,
)
QUICK = Config({4: {"kill": 4, "stop": 1, "cut": 1}}, (0.1, 0.3), (250_000, 625_000), (4, 6), 2, 20 * MB, 3)


def experiment(notes: Notes, quick: bool) -> None:
    """Measures what is not in the notes. Cost: two hours of two cores; quick: five minutes."""
    config = QUICK if quick else FULL
    for workers, counts in config.strikes.items():
        strikes = member_runs.strikes(workers, counts, seed=workers)
        _struck(notes, OURS, workers, strikes, config)
    kills = member_runs.strikes(4, {"kill": config.torchft_kills}, seed=4)
    for side, timeouts in torchft_members.SETTINGS.items() if torchft_members.is_there() else ():
        _struck(notes, side, 4, kills, config, torchft_members.program(timeouts))
    _joined(notes, config)
    for dtype in ("float64", "float32"):
        _trained(notes, dtype, config)
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


def _joined(notes: Notes, config: Config) -> None:
    if notes.has(kind="join"):
        return
    notes.log("a member joins")
    try:
        found = member_runs.joined(config.numel[1], config.compute_s[1])
    except NoTestbed as error:
        notes.log(f"not measured: {error}")
        return
    notes.add({"kind": "join", "numel": config.numel[1], **found})


def _trained(notes: Notes, dtype: str, config: Config) -> None:
    if notes.has(kind="trained", type=dtype):
        return
    import torch

    members, kills = config.kills
    spared = [member_training.SPARED]
    plan = Plan.drawn(members, {"kill": kills}, seed=members, mean_s=_MEAN_S, spared=spared)
    notes.log(f"{members} members train on digits, {kills} kills, {dtype}")
    found = member_training.compared(members, plan, getattr(torch, dtype))
    notes.add({"kind": "trained", "type": dtype, "members": members, "kills": kills, **found})


def _checkpoints(notes: Notes, config: Config) -> None:
    if notes.has(kind="checkpoints"):
        return
    notes.log(f"checkpoints of {config.checkpoint_bytes // MB} MB by 4 ranks")
    found = member_checkpoints.held_up(4, config.checkpoint_bytes, config.rounds)
    notes.add({"kind": "checkpoints", "bytes": config.checkpoint_bytes, "seconds": found})


SYSTEM = System(
    "Members that come and go",
    "own design, decisions 38 and 40",
    "Elastic(2, 8)",
    experiment,
    study,
)
