"""Runs a job: starts its workers from the fork server, or takes part as one worker under torchrun."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tweed import testbed
from tweed.testbed import server
from tweed.train.folder import RunFolder, latest
from tweed.train.settings import OURS, Settings
from tweed.train.tasks import TASKS

#: Called with each line of figures, see `loop.Figures`.
Show = Callable[[dict[str, Any]], None]


def prepare() -> None:
    """Starts the fork server, which warms up while the caller does other things."""
    testbed.preload("tweed.train.loop", *(f"tweed.train.tasks.{name.replace('-', '_')}" for name in TASKS))
    server.start()


def launch(settings: Settings, folder: RunFolder, show: Show) -> None:
    """Trains all sides, one after the other, each with fresh workers, from where it was left.

    Args:
      folder: a started run.

    Raises: RankFailed if a worker fails; the others were ended.
    """
    for label in _unfinished(settings, folder):
        folder.cut(label, latest(folder.checkpoints(label)))
        job = (settings, label, folder.path)
        with testbed.Ranks(_work, settings.workers, *job, backend=backend_of(label, settings)) as ranks:
            while ranks.running():
                _handle(ranks, ranks.poll(), folder, show)


def _handle(ranks: testbed.Ranks, events: list[testbed.Event], folder: RunFolder, show: Show) -> None:
    for event in events:
        if isinstance(event, testbed.Said):
            folder.append(event.value)
            show(event.value)
    if failures := [event for event in events if isinstance(event, testbed.Failed)]:
        raise testbed.RankFailed(ranks.blame(failures))


def _unfinished(settings: Settings, folder: RunFolder) -> list[str]:
    return [label for label in settings.sides if latest(folder.checkpoints(label)) < settings.steps]


def backend_of(label: str, settings: Settings) -> str:
    """Torch backend of the side called `label`."""
    return settings.backend if label == OURS else "gloo"


def _work(rank: int, size: int, settings: Settings, label: str, path: Path) -> None:
    """What a rank of the fork server does."""
    from tweed.train.loop import Worker

    Worker(settings, label, RunFolder(path).checkpoints(label), testbed.say).run()
