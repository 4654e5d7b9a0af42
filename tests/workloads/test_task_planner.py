"""The planner by hand: each transition, and what holds whatever happens."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweed.workloads.tasks.events import End, Enough, Event, Lost, Raised, Ready, Replace, Returned, Run, Why
from tweed.workloads.tasks.lateness import LEAST, MOST, Lateness
from tweed.workloads.tasks.planner import Planner, State

Step = tuple[float, Event | None]


def planner(tasks: int = 3, workers: int = 2, **settings: Any) -> Planner:
    """Its workers are ready, and have their first copies: 0 and 1, of tasks 0 and 1."""
    made = Planner(tasks, workers, **settings)
    after(made, *((0.0, Ready(worker)) for worker in range(workers)))
    return made


def after(made: Planner, *steps: Step) -> list[Run | Replace]:
    """What is to be done after these events, each followed by a poll; None: only the poll."""
    done: list[Run | Replace] = []
    for now, event in steps:
        if event is not None:
            made.handle(event, now)
        done = made.poll(now)
    return done


#: Copies 0 and 2, of tasks 0 and 2, return after 1 s each: task 1 alone is under way, and late after 3 s.
ONE_LEFT: list[Step] = [(1.0, Returned(0, "a")), (2.0, Returned(2, "c"))]
SPECULATIVE: list[Step] = [*ONE_LEFT, (3.0, None)]

TABLE: dict[str, tuple[list[Step], list[Run | Replace], dict[int, State]]] = {
    "a worker that is not ready gets nothing": ([], [], {0: State.BUSY, 1: State.BUSY}),
    "the next task goes to who returns": ([(1.0, Returned(0, "a"))], [Run(0, 2, 2)], {0: State.BUSY}),
    "what returns twice frees nobody": (
        [(1.0, Returned(0, "a")), (1.0, Returned(0, "a"))],
        [],
        {0: State.BUSY},
    ),
    "a lost worker is replaced": ([(1.0, Lost(0, "died"))], [Replace(0)], {0: State.STARTING}),
    "its task goes first to who is ready": (
        [(1.0, Lost(0, "died")), (1.1, Ready(0))],
        [Run(0, 2, 0)],
        {0: State.BUSY},
    ),
    "what a lost worker still returns is not known": (
        [(1.0, Lost(0, "died")), (1.1, Returned(0, "a"))],
        [],
        {0: State.STARTING},
    ),
    "readiness that is told twice changes nothing": ([(1.0, Ready(0))], [], {0: State.BUSY}),
    "nobody is late before": (ONE_LEFT, [], {0: State.IDLE, 1: State.BUSY}),
    "who is late gets a second copy": (SPECULATIVE, [Run(0, 3, 1)], {0: State.BUSY, 1: State.BUSY}),
    "there is no third copy": ([*SPECULATIVE, (32.0, None)], [], {0: State.BUSY, 1: State.BUSY}),
    "a second copy that is hopeless is given up": (
        [*SPECULATIVE, (34.0, None)],
        [Replace(0)],
        {1: State.BUSY},
    ),
    "and made again": ([*SPECULATIVE, (34.0, None), (34.0, Ready(0))], [Run(0, 4, 1)], {0: State.BUSY}),
    "with twice as much patience": (
        [*SPECULATIVE, (34.0, None), (34.0, Ready(0)), (93.0, None)],
        [],
        {0: State.BUSY},
    ),
    "a second copy that is alone is not given up": (
        [*SPECULATIVE, (4.0, Lost(1, "died")), (1e6, None)],
        [],
        {0: State.BUSY},
    ),
    "a task with another copy does not wait": ([*SPECULATIVE, (4.0, Lost(1, "died"))], [Replace(1)], {}),
}


@pytest.mark.parametrize("name", TABLE)
def test_transitions(name: str) -> None:
    steps, expected, states = TABLE[name]
    made = planner(lateness=Lateness(2.0))
    assert after(made, *steps) == expected
    assert {worker: made.state(worker) for worker in states} == states


def four() -> Planner:
    """Tasks 0 and 2 are counted; worker 0 has task 3, worker 1 task 1, which is late, and 2 a second copy."""
    made = planner(4, 3)
    after(made, (1.0, Returned(0, "a")), (1.0, Returned(2, "c")), (2.0, None))
    assert made.speculative == 1 and made.state(2) is State.BUSY
    return made


@pytest.mark.parametrize(
    ("steps", "expected", "state"),
    [
        ([(3.0, Returned(4, "second"))], [], State.UNNEEDED),
        ([(3.0, Returned(4, "second")), (4.0, Returned(1, "first"))], [], State.IDLE),
        ([(3.0, Returned(4, "second")), (10.0, None)], [Replace(1)], State.STARTING),
        ([(3.0, Returned(4, "second")), (3.1, Lost(1, "died"))], [Replace(1)], State.STARTING),
        ([(3.0, Returned(4, "second")), (3.1, Raised(1, "no"))], [], State.IDLE),
    ],
)
def test_a_copy_that_nobody_needs(steps: list[Step], expected: list[Replace], state: State) -> None:
    made = four()
    done = after(made, *steps)
    assert [action for action in done if isinstance(action, Replace)] == expected
    assert made.state(1) is state and made.results[1] == "second" and made.end is None


def test_after_the_grace_a_process_is_replaced_and_poll_is_asked_for_then() -> None:
    made = four()
    after(made, (3.0, Returned(4, "second")))
    at = made.next_at()
    assert at == 3.0 + made.lateness.grace_s
    assert after(made, (at - 1e-9, None)) == [] and after(made, (at, None)) == [Replace(1)]


ENDS: list[tuple[list[Step], End]] = [
    ([(1.0, Raised(1, "trace"))], End(Why.RAISED, 1, "trace")),
    ([(1.0, Enough())], End(Why.ENOUGH)),
    ([(9.0, None)], End(Why.DEADLINE)),
    ([(1.0, Returned(0, "a")), (2.0, Returned(1, "b")), (3.0, Returned(2, "c"))], End(Why.COMPLETE)),
    (
        [step for at in (1.0, 2.0, 3.0) for step in ((at, Lost(0, "died")), (at, Ready(0)))],
        End(Why.FATAL, 0, "died"),
    ),
    (
        [(1.0, step) for worker in (0, 1) for step in [Lost(worker, "died")] * 4],
        End(Why.NO_WORKERS, None, "died"),
    ),
]


@pytest.mark.parametrize(("steps", "end"), ENDS, ids=lambda value: getattr(value, "why", Why.COMPLETE).name)
def test_ends(steps: list[Step], end: End) -> None:
    made = planner(deadline=9.0)
    after(made, *steps)
    assert made.end == end
    results = dict(made.results)
    assert after(made, (9.5, Returned(0, "late")), (9.5, Lost(0, "late")), (99.0, Enough())) == []
    assert made.end == end and made.results == results


def test_a_worker_is_given_up_only_for_losses_before_it_was_ready() -> None:
    made = Planner(9, 2)
    for _ in range(9):  # within a task or idle, it is replaced each time
        after(made, (0.0, Ready(0)), (0.0, Lost(0, "died")))
        made._losses.clear()
    for _ in range(3):
        assert made.state(0) is State.STARTING
        after(made, (0.0, Lost(0, "died")))
    assert made.state(0) is State.FAILED and made.end is None


def test_no_tasks_are_complete_at_once() -> None:
    made = Planner(0, 2)
    assert made.end == End(Why.COMPLETE) and made.poll(0.0) == []


def test_without_a_deadline_nothing_is_waited_for_but_events() -> None:
    assert planner().next_at() == math.inf and planner(deadline=7.0).next_at() == 7.0


def test_the_delay_is_learned_from_what_speculation_was_good_for() -> None:
    late = Lateness()
    assert late.usual_s == math.inf
    for seconds in (1.0, 3.0, 2.0):
        late.ran(seconds)
    assert late.usual_s == 2.0 and late.late_after_s == 4.0 and late.grace_s == 4.0
    for _ in range(9):
        late.speculated(useful=False)
    assert late.speculation_delay == MOST
    for _ in range(9):
        late.speculated(useful=True)
    assert late.speculation_delay == LEAST
    never = Lateness(0.0)
    never.speculated(useful=False)
    assert never.speculation_delay == 0.0


# --- Whatever happens.

EVENTS: st.SearchStrategy[Callable[[int, int], Event]] = st.one_of(
    st.integers(0, 3).map(lambda n: lambda workers, copies: Ready(n % workers)),
    st.integers(0, 30).map(lambda n: lambda workers, copies: Returned(n % (copies + 1), n)),
    st.integers(0, 3).map(lambda n: lambda workers, copies: Lost(n % workers, "died")),
)


@given(
    tasks=st.integers(1, 8),
    workers=st.integers(1, 4),
    steps=st.lists(st.tuples(st.floats(0, 5), EVENTS), max_size=60),
)
def test_events_in_any_order_leave_it_sound(
    tasks: int, workers: int, steps: list[tuple[float, Callable[[int, int], Event]]]
) -> None:
    made, now, given_ = Planner(tasks, workers), 0.0, dict[int, int]()
    for seconds, event in steps:
        now += seconds
        before = dict(made.results)
        made.handle(event(workers, len(given_)), now)
        assert before.items() <= made.results.items()  # what counts stays
        for action in made.poll(now):
            if isinstance(action, Run):
                assert action.copy not in given_ and action.task not in made.results
                given_[action.copy] = action.task
        running = [copy.task for copy in made.under_way()]
        assert all(running.count(task) <= 2 for task in running)
        held = [copy.worker for copy in made._copies.values()]
        assert len(set(held)) == len(held)
        if made.end is None:  # each task is counted, under way, or waits
            assert set(range(tasks)) == {*made.results, *running, *made._waiting}
            assert len(made._waiting) == len(set(made._waiting))
            assert made.next_at() > now
