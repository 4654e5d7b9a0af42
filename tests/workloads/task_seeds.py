"""Maps of tasks on the virtual clock, each drawn from its seed: some with the tests, by the ten thousand with
`python -m tests.workloads.task_soak`."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tweed.workloads.tasks.events import Why
from tweed.workloads.tasks.planner import MOST_STARTS, Planner
from tweed.workloads.tasks.simulated import Conditions, Result, simulate_tasks

_DEADLINE_S = 1e5  # later than anything that ends by itself


def drawn(seed: int) -> Conditions:
    """What a seed draws: half of all maps have each kind of fault."""
    rng = random.Random(seed)

    def maybe(most: float) -> float:
        return rng.uniform(0, most) if rng.random() < 0.5 else 0.0

    tasks, hang, loss = rng.randint(1, 60), maybe(0.1), maybe(0.4)
    return Conditions(
        tasks=tasks,
        workers=rng.randint(1, 8),
        slow=maybe(0.4),
        slow_factor=rng.choice([3.0, 10.0, 100.0]),
        death=maybe(0.3),
        hang=hang,
        start_death=maybe(0.2),
        loss=loss,
        fatal=rng.randrange(tasks) if rng.random() < 0.05 else None,
        enough=rng.randint(1, tasks) if rng.random() < 0.2 else None,
        deadline_s=_DEADLINE_S if hang else math.inf,
    )


def verify(seed: int, make: Callable[..., Planner] = Planner) -> Result:
    """Runs one. Raises: AssertionError, if anything is wrong."""
    conditions = drawn(seed)
    run = simulate_tasks(conditions, seed, make)
    _counts_once(conditions, run)
    _copies_are_bounded(conditions, run)
    _ends_for_a_reason(conditions, run)
    return run


def _counts_once(conditions: Conditions, run: Result) -> None:
    assert len(set(run.counted)) == len(run.counted) == len(run.results), "a task is counted twice"
    assert set(run.counted) == set(run.results), "results were lost"
    assert all(copy in run.ran[task] for task, copy in run.results.items()), "a result is another task's"


def _copies_are_bounded(conditions: Conditions, run: Result) -> None:
    assert run.together <= 2, "a task has three copies at a time"
    # All tasks that a speculative copy can be of are under way when none waits for the first time.
    assert run.speculative <= conditions.workers + run.deaths + run.replaced, "too much speculation"
    copies = sum(len(numbers) for numbers in run.ran.values())
    assert copies <= conditions.tasks + run.speculative + run.deaths, "tasks ran again for no reason"


def _ends_for_a_reason(conditions: Conditions, run: Result) -> None:
    assert run.end is not None, "it does not end"
    match run.end.why:
        case Why.COMPLETE:
            assert len(run.results) == conditions.tasks, "results were lost"
        case Why.ENOUGH:
            assert len(run.results) == conditions.enough
        case Why.FATAL:
            assert run.end.task == conditions.fatal, "a task is blamed that is none of it"
        case Why.NO_WORKERS:
            assert conditions.start_death and run.deaths >= MOST_STARTS * conditions.workers
        case Why.DEADLINE:
            assert _is_stuck(conditions, run), "it is late though workers are free"
        case why:
            raise AssertionError(f"it ended as {why.value}")


def _is_stuck(conditions: Conditions, run: Result) -> bool:
    """Whether no worker could do more: each was given up or holds a copy that hangs. Before a task is done
    nobody knows what is late."""
    free = conditions.workers - len(run.hung) - run.failed
    return bool(run.hung) and (not run.results or free == 0)


@dataclass
class Report:
    """What came about in many seeds, and what was wrong, by seed."""

    totals: Counter[str] = field(default_factory=Counter)
    wrong: dict[int, str] = field(default_factory=dict)


def verified(seeds: range, make: Callable[..., Planner] = Planner) -> Report:
    """Runs each in turn."""
    report = Report()
    for seed in seeds:
        try:
            run = verify(seed, make)
        except Exception as error:  # noqa: BLE001 - whatever is wrong is wrong with this seed
            report.wrong[seed] = f"{type(error).__name__}: {error}"
            continue
        assert run.end is not None  # that is verified
        report.totals.update([run.end.why.name.lower()])
        report.totals.update(speculative=run.speculative, replaced=run.replaced, deaths=run.deaths)
    return report
