"""Both sides of a step, by hand and in virtual time: what counts, and what is thrown away."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from tweed.cadence import ByShards
from tweed.data.coding import Work, work_of
from tweed.data.coding.times import SCHEMES, Stragglers
from tweed.errors import DataError
from tweed.exchange.coded_steps import (
    Broken,
    CodedStepServer,
    CodedStepWorker,
    Contribution,
    Heard,
    Tally,
    Update,
)
from tweed.exchange.coded_steps.choice import Choice, candidates
from tweed.exchange.coded_steps.header import Header, Kind, Over
from tweed.exchange.coded_steps.worker import State, renumbered

MODELS = {"uncoded": "uncoded, messages", "gradient_code": "GC", "nested": "GC, messages", "hybrid": "hybrid"}


def server(works: list[Work], most_behind: int = 32) -> CodedStepServer:
    return CodedStepServer(works, Choice([("uncoded", 1)], len(works[0].tasks)), most_behind)


def gradient(step: int, shard: int) -> torch.Tensor:
    return torch.tensor([100.0 * step + shard, 0.1 * shard])


def mean(step: int, shards: int) -> torch.Tensor:
    rows = [gradient(step, shard) for shard in range(shards)]
    return sum(rows[1:], start=rows[0]) / shards


def total(update: Update) -> torch.Tensor:
    """As the live server adds up."""
    parts = [
        weight * part
        for value, weights in update.terms
        for part, weight in zip(value.view(len(weights), -1), weights, strict=True)
    ]
    return (sum(parts[1:], start=parts[0]) / update.divisor).float()


@dataclass
class Virtual:
    """Workers and a server on a virtual clock; news of a step that is over takes no time.

    `task_s` has seconds per shard of each step and worker, `message_s` of each message, during which its
    worker does nothing else; `speculation_delay` is that of the workers.
    """

    machine: CodedStepServer
    task_s: Any
    message_s: float = 0.0
    speculation_delay: float = 0.0
    updates: list[tuple[float, Update]] = field(default_factory=list)

    def run(self, steps: int) -> None:
        workers = len(self.machine.work.tasks)
        self.steps, self.sides = (
            steps,
            [CodedStepWorker(worker, self.speculation_delay) for worker in range(workers)],
        )
        self.at, self.queue, self.count = [0] * workers, [], 0
        self.waits = [False] * workers  # for word that the step is over
        for worker in range(workers):
            self.begin(worker, 0.0)
        while self.queue and len(self.updates) < steps:
            now, _, what = heapq.heappop(self.queue)
            if isinstance(what, Contribution):
                self.machine.handle(what)
                self.poll(now)
            elif isinstance(what, tuple):
                self.waited(*what, now)
            else:
                self.computed(what, now)

    def begin(self, worker: int, now: float) -> None:
        """What is over already is gone through; of the first that is not, the first shard is computed."""
        while self.at[worker] < self.machine.step:
            self.machine.handle(Heard(worker, self.at[worker], Tally()))
            self.at[worker] += 1
        if self.at[worker] < self.steps:
            self.sides[worker].begin(self.machine.work)
            self.push(now + self.task_s[self.at[worker]][worker], worker)

    def computed(self, worker: int, now: float) -> None:
        side, step = self.sides[worker], self.at[worker]
        if step < self.machine.step:
            side.over()
            side.done(gradient(step, 0))
            self.begin(worker, now)
            self.poll(now)
            return
        for message in side.done(gradient(step, side.next())):
            now += self.message_s
            self.push(now, Contribution(worker, step, message.place, message.value))
        if side.state is State.COMPUTING:
            speculation_delay = side.speculation_delay if side.may_be_enough else 0.0
            self.waits[worker] = True
            self.push(now + speculation_delay * self.task_s[step][worker], (worker, step))

    def waited(self, worker: int, step: int, now: float) -> None:
        if step == self.at[worker] and self.waits[worker]:
            self.waits[worker] = False
            self.sides[worker].next()
            self.push(now + self.task_s[step][worker], worker)

    def poll(self, now: float) -> None:
        while (update := self.machine.poll()) is not None:
            self.updates.append((now, update))
            for worker, side in enumerate(self.sides):
                if self.at[worker] == update.step and (self.waits[worker] or side.state is State.DONE):
                    self.waits[worker] = False
                    side.over()
                    self.begin(worker, now)

    def push(self, when: float, what: Contribution | tuple[int, int] | int) -> None:
        self.count += 1
        heapq.heappush(self.queue, (when, self.count, what))


@pytest.mark.parametrize("code", MODELS)
@pytest.mark.parametrize("seed", range(5))
def test_a_step_is_over_when_the_model_of_times_says(code: str, seed: int) -> None:
    task_s = Stragglers(0.01, 10.0).task_s(8, 1, seed)
    run = Virtual(server([work_of(code, 8, 3)]), task_s, 0.002)
    run.run(1)
    known = SCHEMES[MODELS[code]](3, task_s[0], 0.002)
    assert run.updates[0][0] == pytest.approx(known.seconds)


@pytest.mark.parametrize("code", MODELS)
@pytest.mark.parametrize("seed", range(6))
def test_every_update_is_the_mean_of_its_step_whoever_is_late(code: str, seed: int) -> None:
    steps, workers, load, most_behind = 8, 4, 1 + seed % 4, 1 + seed // 2
    task_s = Stragglers(0.01, 2.0).task_s(workers, steps, seed)
    run = Virtual(server([work_of(code, workers, load)], most_behind), task_s, 0.001)
    run.run(steps)
    assert [update.step for _, update in run.updates] == list(range(steps))
    for step, (_, update) in enumerate(run.updates):
        if code == "uncoded":
            assert torch.equal(total(update), mean(step, workers))
        torch.testing.assert_close(total(update), mean(step, workers), atol=1e-3, rtol=1e-5)
    assert steps - min(run.at) <= most_behind + 1


def test_a_share_of_the_shards_stands_for_all_on_average_whoever_is_slow() -> None:
    """Worker 0 is so slow that its shards never come from it: by their own numbers, one would never count."""
    steps, workers = 600, 4
    drawn = [[renumbered(shard, workers, 0, step) for shard in range(workers)] for step in range(steps)]
    assert all(sorted(one) == list(range(workers)) for one in drawn)
    missing = torch.tensor([one[0] for one in drawn])
    counts = torch.bincount(missing, minlength=workers)
    assert bool(((counts - steps / workers).abs() < 5 * (steps / workers) ** 0.5).all()), counts


def test_what_comes_of_a_step_that_is_over_counts_for_nothing() -> None:
    machine = server([work_of("uncoded", 2, 2)])
    machine.handle(Contribution(0, 0, 0, gradient(0, 0)))
    machine.handle(Contribution(0, 0, 0, gradient(9, 9)))  # twice: the first counts
    assert machine.poll() is None
    machine.handle(Contribution(1, 0, 0, gradient(0, 1)))
    machine.handle(Contribution(1, 0, 1, gradient(9, 9)))
    update = machine.poll()
    assert update is not None and torch.equal(total(update), mean(0, 2)) and machine.poll() is None
    machine.handle(Contribution(0, 0, 1, gradient(9, 9)))
    assert machine.late == 1 and machine.poll() is None
    for event in (Contribution(0, 2, 0, None), Contribution(2, 1, 0, None), Contribution(0, 1, 2, None)):
        with pytest.raises(DataError):
            machine.handle(event)


def test_a_server_waits_for_who_is_too_far_behind() -> None:
    machine = server([work_of("uncoded", 2, 2)], most_behind=1)
    for step in range(3):
        machine.handle(Contribution(0, step, 0, gradient(step, 0)))
        machine.handle(Contribution(0, step, 1, gradient(step, 1)))
        machine.handle(Heard(0, step - 1, Tally()))
        assert (machine.poll() is None) == (step == 2)
    machine.handle(Heard(1, 0, Tally()))
    assert machine.poll() is not None and not machine.all_heard


def test_a_gradient_that_is_not_finite_ends_the_step_and_names_its_worker() -> None:
    side, machine = CodedStepWorker(1), server([work_of("nested", 3, 2)])
    side.begin(machine.work)
    (message,) = side.done(torch.tensor([math.nan, 1.0]))
    assert message.value is None and side.next() is None and side.done(torch.ones(2)) == []
    machine.handle(Broken(1, 0))
    machine.handle(Contribution(0, 0, 0, torch.ones(1, 2)))
    update = machine.poll()
    assert update is not None and update.broken == 1 and update.terms == ()
    machine.handle(Broken(1, 0))
    assert machine.poll() is None and machine.late == 1


def test_a_worker_has_its_shards_in_order_until_it_hears_that_the_step_is_over() -> None:
    side = CodedStepWorker(2)
    assert side.next() is None
    side.begin(work_of("gradient_code", 4, 3))
    assert side.next() == 2 and side.done(torch.ones(2)) == [] and not side.may_be_enough
    assert side.next() == 3 and side.done(torch.ones(2)) == []
    assert side.next() == 0 and [one.place for one in side.done(torch.ones(2))] == [0] and side.next() is None
    side.begin(work_of("uncoded", 4, 3))
    assert torch.equal(side.done(torch.ones(2))[0].value, torch.ones(2))  # type: ignore[arg-type]
    assert side.may_be_enough
    side.over()
    assert side.next() is None and side.done(torch.ones(2)) == [] and not side.may_be_enough


@pytest.mark.parametrize(
    ("first", "in_vain", "last"),
    [
        (0.25, [True], 0.5),
        (0.25, [True] * 5, 1.0),
        (0.25, [False] * 5, 0.125),
        (2.0, [True, False], 1.0),
        (0.0, [True, False], 0.0),
    ],
)
def test_speculation_delay_grows_after_shards_in_vain(first: float, in_vain: list[bool], last: float) -> None:
    side = CodedStepWorker(0, first)
    for vain in in_vain:
        side.begin(work_of("uncoded", 2, 2))
        side.next()
        side.done(torch.ones(2))
        assert side.next() == 1
        if vain:
            side.over()
        side.done(torch.ones(2))
    assert side.speculation_delay == last


@pytest.mark.parametrize(
    "stragglers",
    [Stragglers(1.0, 1e9), Stragglers(1.0, 20.0), Stragglers(0.1, 1.0)],
    ids=["nobody is slow", "some are a little", "some are very slow"],
)
def test_a_worker_learns_how_long_to_wait_for_word(stragglers: Stragglers) -> None:
    steps = 100
    task_s = stragglers.task_s(8, steps, 5)

    def seconds(speculation_delay: float) -> float:
        run = Virtual(server([work_of("uncoded", 8, 3)]), task_s, 0.001, speculation_delay)
        run.run(steps)
        return run.updates[-1][0]

    assert seconds(0.25) < 1.05 * min(seconds(0.0), seconds(1e9))


@pytest.mark.parametrize(("message_s", "chosen"), [(0.0, ("uncoded", 3)), (1.0, ("uncoded", 1))])
def test_the_code_is_chosen_by_what_shards_and_messages_took(
    message_s: float, chosen: tuple[str, int]
) -> None:
    choice = Choice(candidates(ByShards("auto", 3)), 8)
    drawn = Stragglers(0.01, 10.0).task_s(8, 32, 0)
    for step in drawn:
        for task_s in step.tolist():
            choice.note(Tally(2, 2 * task_s, 2, 2 * message_s))
        choice.note(Tally())  # has missed the step
        choice.stepped()
    assert choice.among[choice.now] == chosen


def test_a_code_that_was_named_stays() -> None:
    choice = Choice(candidates(ByShards("nested", 3)), 8)
    for _ in range(100):
        choice.note(Tally(1, 1.0, 1, 1.0))
        choice.stepped()
    assert choice.among == [("nested", 3)] and choice.now == 0


def test_heads_come_back_as_they_were() -> None:
    head = Header(Kind.HEARD, 7, tally=Tally(3, 0.25, 2, 0.5))
    assert Header.of(head.packed()) == head and Over.of(Over(3, 1, -1).packed()) == Over(3, 1, -1)
    for bad in (
        [9, 0, 0, 0, 0, 0, 0, 0],
        [0, -1, 0, 0, 0, 0, 0, 0],
        [0, 0.5, 0, 0, 0, 0, 0, 0],
        [0, math.nan, *6 * [0]],
    ):
        with pytest.raises(DataError, match="no message of a worker"):
            Header.of(torch.tensor(bad, dtype=torch.float64))
