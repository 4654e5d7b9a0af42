"""The table of tasks. A new task is a file with a `TASK`, and a row here."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tweed.errors import UsageError

if TYPE_CHECKING:
    from tweed.train.tasks.base import Task


@dataclass(frozen=True, slots=True)
class Row:
    """What can be said about a task without importing torch.

    Attributes:
      about: one line for people.
      data: name of the data set.
      steps, batch_size, lr: what a job takes if nothing else is asked for.
      test_samples: how many of the test samples, from the first, are looked at in each evaluation.
      step_s: seconds of a processor that a step of one worker takes, roughly, its exchange and its part of
        the evaluations included.
    """

    about: str
    data: str
    steps: int
    batch_size: int
    lr: float
    test_samples: int
    step_s: float


TASKS = {
    "fashion-mnist": Row("a small CNN on pictures of clothes", "fashion-mnist", 500, 32, 0.05, 10_000, 0.02),
    "digits": Row("a perceptron on small pictures of digits", "digits", 300, 16, 0.05, 359, 0.002),
    "shakespeare": Row("a small transformer on characters", "shakespeare", 1_500, 16, 0.003, 1_000, 0.03),
    "shakespeare-large": Row(
        "a transformer of 1.8 million parameters on characters", "shakespeare", 500, 8, 0.001, 1_000, 0.2
    ),
}


def row(name: str) -> Row:
    """The row of a task. Raises: UsageError if there is none."""
    if name not in TASKS:
        raise UsageError(f"there is no task {name!r}; there are {', '.join(TASKS)}")
    return TASKS[name]


def task(name: str) -> Task:
    """The task itself; imports torch. Raises: UsageError if there is none."""
    row(name)
    found: Task = importlib.import_module(f"tweed.train.tasks.{name.replace('-', '_')}").TASK
    return found
