"""What is learned: whole runs of `tweed train`, one per strategy and seed."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from tweed.report.notes import Notes
from tweed.train.launch import launch
from tweed.train.request import Request, begin


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """One run.

    Attributes:
      task: a name in `tweed.train.tasks.TASKS`.
      variant: what the strategy is called in tables.
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


def train(notes: Notes, run: TrainingRun, seed: int) -> None:
    """Trains, unless the notes have it already, and notes accuracy and the share that was lost.

    Raises: RankFailed, NoTestbed as `tweed.train.launch`.
    """
    which = {"kind": "training_run", "task": run.task, "variant": run.variant, "seed": seed}
    if notes.has(**which):
        return
    notes.log(f"{run.task}, {run.variant}, seed {seed}")
    given = {"task": run.task, "workers": run.workers, "strategy": run.strategy, "seed": seed}
    given |= {"steps": run.steps} | ({} if run.network is None else {"network": run.network})
    name = f"{run.task}-{run.variant}-{seed}".replace(" ", "-")
    settings, folder = begin(Request(given, name=name), notes.folder / "trainings", lambda text: None)
    launch(settings, folder, lambda figures: None)
    last = folder.figures()[-1]
    workers = (share for rank, share in enumerate(last["delivered"] or [1.0]) if rank != settings.server)
    share = 1.0 if last["delivered"] is None else statistics.fmean(workers)
    words = "over this host's own network" if settings.links is None else settings.links.words
    facts = which | {"accuracy": last["accuracy"], "lost": 1 - share, "seconds": last["seconds"]}
    notes.add(facts | {"strategy": run.strategy, "steps": run.steps, "words": words})
