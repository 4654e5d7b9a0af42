"""What is learned: whole trainings, one per strategy and seed, as `tweed train` runs them."""

from __future__ import annotations

from dataclasses import dataclass

from tweed.systems.base import Notes
from tweed.train.launch import launch
from tweed.train.request import Request, begin
from tweed.train.settings import Settings


@dataclass(frozen=True, slots=True)
class Lesson:
    """One training.

    Attributes:
      task: a name in `tweed.train.tasks.TASKS`.
      variant: what the strategy is called in figures.
      strategy: as for `tweed.named_strategy`.
      network: as for `testbed.Network.parse`; None: this host's own.
      steps: optimizer steps.
      workers: that have data; a server comes on top.
    """

    task: str
    variant: str
    strategy: str
    network: str | None
    steps: int
    workers: int = 4


def teach(notes: Notes, lesson: Lesson, seed: int) -> None:
    """Trains, unless the notes have it already, and notes accuracy and the share that was lost.

    Raises: RankFailed, NoTestbed as `tweed.train.launch`.
    """
    which = {"kind": "school", "task": lesson.task, "variant": lesson.variant, "seed": seed}
    if notes.has(**which):
        return
    given = {"task": lesson.task, "workers": lesson.workers, "strategy": lesson.strategy, "seed": seed}
    given |= {"steps": lesson.steps} | ({} if lesson.network is None else {"network": lesson.network})
    name = f"{lesson.task}-{lesson.variant}-{seed}".replace(" ", "-")
    settings, folder = begin(Request(given, name=name), notes.folder / "trainings", lambda text: None)
    launch(settings, folder, lambda figures: None)
    last = folder.figures()[-1]
    share = 1.0 if last["delivered"] is None else _workers_mean(last["delivered"], settings.server)
    notes.add(
        which
        | {"accuracy": last["accuracy"], "lost": 1 - share, "seconds": last["seconds"]}
        | {"strategy": lesson.strategy, "steps": lesson.steps, "words": _words(settings)}
    )


def _words(settings: Settings) -> str:
    return "over this host's own network" if settings.links is None else settings.links.words


def _workers_mean(by_rank: list[float], server: int | None) -> float:
    shares = [share for rank, share in enumerate(by_rank) if rank != server]
    return sum(shares) / len(shares)
