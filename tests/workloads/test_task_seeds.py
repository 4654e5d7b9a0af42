"""Maps of tasks under drawn faults are right, and what is wrong in a planner is found."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workloads.task_seeds import verified
from tweed.workloads.tasks.events import Event, Returned
from tweed.workloads.tasks.planner import Copy, Planner
from tweed.workloads.tasks.simulated import Conditions, simulate_tasks


def test_seeds_of_all_faults() -> None:
    report = verified(range(200))
    assert report.wrong == {}
    came = ("complete", "enough", "fatal", "deadline", "speculative", "replaced", "deaths")
    assert all(report.totals[what] > 5 for what in came), report.totals


class Forgets(Planner):
    """A lost worker's tasks go to nobody."""

    def _lose_copy(self, task: int, why: str) -> None:
        return


class Hoards(Planner):
    """A late task gets copy after copy."""

    def _only_copies(self) -> list[Copy]:
        return self.under_way()


class Mixes(Planner):
    """A result counts as that of another task."""

    def _count(self, copy: Copy, value: Any, now: float) -> None:
        super()._count(copy._replace(task=self.tasks - 1 - copy.task), value, now)


class Deaf(Planner):
    """What the last copy returns is not heard."""

    def handle(self, event: Event, now: float) -> None:
        if not isinstance(event, Returned) or event.copy != self.tasks - 1:
            super().handle(event, now)


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (Forgets, "it does not end|workers are free"),
        (Hoards, "three copies"),
        (Mixes, "counted twice|another task's"),
        (Deaf, "it does not end|workers are free"),
    ],
)
def test_a_wrong_planner_is_found(make: type[Planner], wrong: str) -> None:
    texts = verified(range(60), make).wrong.values()
    assert any(text for text in texts if any(part in text for part in wrong.split("|"))), texts


def test_a_seed_gives_one_run() -> None:
    conditions = Conditions(tasks=30, workers=4, slow=0.3, death=0.2, loss=0.2)
    runs = [simulate_tasks(conditions, seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_speculation_helps_against_slow_processes() -> None:
    """Beside a planner without it."""

    class WithoutSpeculation(Planner):
        def _only_copies(self) -> list[Copy]:
            return []

    conditions = Conditions(tasks=60, workers=6, slow=0.2, slow_factor=50.0)
    with_it, without = (
        sum(simulate_tasks(conditions, seed, make).seconds for seed in range(20))
        for make in (Planner, WithoutSpeculation)
    )
    assert with_it < without / 2


def test_deaths_of_five_percent_cost_less_than_a_fifth_more_time() -> None:
    calm = Conditions(tasks=400, workers=8)
    struck = Conditions(tasks=400, workers=8, death=0.05)
    seconds = [sum(simulate_tasks(each, seed).seconds for seed in range(5)) for each in (calm, struck)]
    assert seconds[1] < 1.2 * seconds[0]
