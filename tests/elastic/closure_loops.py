"""Loops of members whose optimizer takes a closure. Without pytest, as each rank imports it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import tweed
from tests.elastic.loops import BATCH, SAMPLES, TOGETHER, Ended, Trainee, dataset, ended
from tests.elastic.members import among, kill_me
from tests.faults.ring import logs_here
from tweed.data.sampler import GlobalOrder
from tweed.elastic import Checkpoints, Elastic, start

STEPS = 12
#: A step, and the evaluation within it.
Moment = tuple[int, int]


class Searcher(Trainee):
    """Trains by L-BFGS, with a schedule of its rate."""

    def __init__(self, seed: int, search: str | None) -> None:
        super().__init__(seed)
        self.optimizer: Any = torch.optim.LBFGS(
            self.model.parameters(), lr=0.1, max_iter=4, history_size=5, line_search_fn=search
        )
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 4, 0.8)

    def loss(self, batch: Any) -> Tensor:
        x, y = batch
        return (self.model(x) - y).square().mean()

    def step(self, closure: Callable[[], Tensor]) -> None:
        self.optimizer.step(closure)
        self.schedule.step()


def undisturbed(steps: int, search: str | None) -> Tensor:
    """One process alone, without tweed."""
    searcher, (x, y), order = Searcher(0, search), dataset().tensors, GlobalOrder(SAMPLES, seed=3)
    for step in range(steps):
        samples = order.samples(range(step * BATCH, (step + 1) * BATCH))

        def closure(samples: list[int] = samples) -> Tensor:
            searcher.optimizer.zero_grad()
            loss = searcher.loss((x[samples], y[samples]))
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        searcher.step(closure)
    return searcher.flat


def attached(searcher: Searcher, control: Any, strategy: Any, dies: Callable[[int, int], bool]) -> Any:
    """The run, and its closure, within whose loss this process kills itself if `dies(step, evaluation)`."""
    run = tweed.attach(searcher.model, searcher.optimizer, strategy, elastic=control)
    run.keep("schedule", searcher.schedule)
    at = {"step": -1, "evaluation": 0}

    def loss(batch: Any) -> Tensor:
        step = int(searcher.schedule.last_epoch)
        at["evaluation"] = at["evaluation"] + 1 if at["step"] == step else 0
        at["step"] = step
        if dies(step, at["evaluation"]):
            kill_me()
        return searcher.loss(batch)

    return run, run.closure(loss)


def closes(
    rank: int, size: int, port: int, search: str | None, dies: dict[int, Moment], options: dict[str, Any]
) -> Ended:
    """Members kill themselves within an evaluation; or leave before a step, if its number is negative."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    searcher, at = Searcher(rank, search), dies.get(rank, (10**6, 0))
    control = start(store, rank, size, Elastic(1, size))
    run, closure = attached(searcher, control, options.pop("strategy", "every_step"), lambda *now: now == at)
    iterations = 0
    with run, run.leaving_on(signal.SIGTERM):
        for _ in run.batches(dataset(), STEPS, BATCH, seed=3, check_every=1, **options):
            if run.steps_done == -at[0]:
                os.kill(os.getpid(), signal.SIGTERM)
            searcher.step(closure)
            iterations += 1
    return ended(run, searcher, iterations)


def joins(rank: int, size: int, port: int, search: str | None, victim: int | None) -> Ended:
    """The last rank joins while the others train; all go on for some steps together, within which one may
    kill itself."""
    store, last = dist.TCPStore("127.0.0.1", port, is_master=False), 10**6
    control = among(store, rank, size - 1, Elastic(1, size))
    searcher, iterations = Searcher(rank, search), 0

    def dies(step: int, evaluation: int) -> bool:
        return rank == victim and step == last - TOGETHER // 2 and evaluation == 2

    run, closure = attached(searcher, control, "every_step", dies)
    with run:
        for _ in run.batches(dataset(), 10**6, BATCH, seed=3, check_every=1):
            searcher.step(closure)
            iterations += 1
            if last == 10**6 and len(run.members) == size:
                last = int(store.compare_set("last", "", str(run.steps_done + TOGETHER)))
            if run.steps_done >= last:
                break
    return ended(run, searcher, iterations)


def waits(rank: int, size: int, port: int, search: str | None) -> Ended:
    """All but the last have to be there: one kills itself within a step, and the others wait, until the last
    comes and gets the state within that step."""
    logs_here()
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    if rank == size - 1:
        store.get("they wait")
    control = among(store, rank, size - 1, Elastic(size - 1, size), of=1)
    searcher = Searcher(rank, search)
    run, closure = attached(searcher, control, "every_step", lambda *now: rank == 0 and now == (3, 2))
    with run:
        for _ in run.batches(dataset(), STEPS, BATCH, seed=3, check_every=1):
            searcher.step(closure)
    return ended(run, searcher, 0)


def resumes(
    rank: int, size: int, port: int, folder: Path, attempt: str, steps: int, by_members: bool
) -> Ended:
    """Goes on from what rank 0 has stored, or what all have."""
    store = dist.PrefixStore(attempt, dist.TCPStore("127.0.0.1", port, is_master=False))
    searcher, kept = Searcher(rank, "strong_wolfe"), folder / "kept.pt"
    control = start(store, rank, size, Elastic(1, 4))
    run, closure = attached(searcher, control, "every_step", lambda *now: False)
    parts = {"model": searcher.model, "optimizer": searcher.optimizer, "schedule": searcher.schedule}
    parts |= {"run": run}
    checkpoints = Checkpoints(folder / "members", 3) if by_members else None
    with run:
        if kept.exists() and not by_members:
            state = torch.load(kept)
            for name, part in parts.items():
                part.load_state_dict(state[name])
        for _ in run.batches(dataset(), steps, BATCH, seed=3, checkpoints=checkpoints):
            searcher.step(closure)
        if run.rank == 0:
            torch.save({name: part.state_dict() for name, part in parts.items()}, kept)
    return ended(run, searcher, 0)
