"""Runs a job: starts its workers from the fork server, or takes part as one worker under torchrun."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tweed import metrics, testbed
from tweed.forkserver import server
from tweed.train.folder import RunFolder, latest, plan_of
from tweed.train.settings import OURS, Settings
from tweed.train.tasks import TASKS

#: What each worker may send beside its exchanges: a measurement of the links, scores, a resumed run's model.
ASIDE_BYTES = 8 * 2**20
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

    Raises:
      RankFailed: a worker failed; the others were ended.
      NoTestbed: the network cannot be built.
    """
    for label in [one for one in settings.sides if latest(folder.checkpoints(one)) < settings.steps]:
        folder.cut(label, latest(folder.checkpoints(label)))
        job, backend = (settings, label, folder.path), backend_of(label, settings)
        before = _exchanged(folder, label)
        goes_on = server.environment(plan_of(folder.checkpoints(label)))
        with _bed(settings) as bed, goes_on:
            with testbed.Ranks(_work, settings.ranks, *job, backend=backend, bed=bed) as ranks:
                while ranks.running():
                    _handle(ranks, ranks.poll(), show)
            if bed is not None:
                _note_links(bed, folder, label, _exchanged(folder, label) - before)


def _bed(settings: Settings) -> AbstractContextManager[testbed.LiveNetwork | None]:
    """A fresh network for one side."""
    links = settings.links
    return nullcontext() if links is None else testbed.opened(links, settings.ranks)


def _exchanged(folder: RunFolder, label: str) -> int:
    """Bytes that each worker of a side must have sent so far, also for evaluations, by its figures."""
    rows = [figures for figures in folder.figures() if figures["side"] == label]
    return int(rows[-1]["bytes_per_worker"] + rows[-1]["aside_bytes_per_worker"]) if rows else 0


def _note_links(bed: testbed.LiveNetwork, folder: RunFolder, label: str, bytes_per_worker: int) -> None:
    """Checks the links' own counters against the bytes computed, and keeps both.

    Workers are taken together: a schedule need not have each send as much, but no all-reduce sends less.
    """
    counted = bed.counters()
    total = {"all workers": sum(counted, testbed.Counters())}
    expected = {"all workers": bytes_per_worker * bed.size}
    found = testbed.findings(expected, total, ASIDE_BYTES * bed.size) + bed.doubts()
    folder.append_links(label, [asdict(link) for link in counted], found)


def _handle(ranks: testbed.Ranks, events: list[testbed.Event], show: Show) -> None:
    for event in events:
        if isinstance(event, testbed.Said):
            show(event.value)
    if failures := [event for event in events if isinstance(event, testbed.Failed)]:
        raise testbed.RankFailed(ranks.blame(failures))


def backend_of(label: str, settings: Settings) -> str:
    """Torch backend of the side called `label`."""
    return settings.backend if label == OURS else "gloo"


def _work(rank: int, size: int, settings: Settings, label: str, path: Path) -> None:
    """What a rank of the fork server does.

    It keeps its figures itself: those before a checkpoint are there, even if the launcher died meanwhile.
    """
    from tweed.train.loop import Worker

    metrics.call(path.name)
    folder = RunFolder(path)

    def report(figures: dict[str, Any]) -> None:
        folder.append(figures)
        testbed.say(figures)

    Worker(settings, label, folder.checkpoints(label), report).run()
