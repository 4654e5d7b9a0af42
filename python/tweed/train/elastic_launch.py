"""Starts the workers of a run whose members come and go, and others for those that die; or joins a run."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tweed import metrics, testbed
from tweed.elastic import Checkpoints
from tweed.elastic.training.checks import check_strategy
from tweed.errors import UsageError
from tweed.forkserver import server
from tweed.recipes.named import named_strategy
from tweed.testbed import Ended, Failed, RankFailed
from tweed.train import launch
from tweed.train.folder import RunFolder
from tweed.train.launch import Show
from tweed.train.settings import OURS, Settings

if TYPE_CHECKING:
    from tweed.elastic import Control
    from tweed.train.elastic_worker import ElasticWorker, Entered, Noted

log = logging.getLogger("tweed")

#: Without members for so long, a run is over for its witness.
_ALONE_S = 10.0
#: A worker that was started anew so often without becoming a member is not started again.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Here:
    """A worker can be joined at this address."""

    address: str


@dataclass(frozen=True, slots=True)
class In:
    """A worker is a member."""


@dataclass(frozen=True, slots=True)
class ElasticLauncher:
    """Trains with workers of this machine, of which the next one takes the place of one that has died.

    Args:
      least, most: how many members there may be.
      note: called with lines about workers that have died or left.
      begin: how many workers begin; None: as many as in the settings, which give the batch.
    """

    least: int
    most: int
    note: Callable[[str], None]
    begin: int | None = None

    @classmethod
    def parse(cls, text: str, note: Callable[[str], None], begin: int | None = None) -> ElasticLauncher:
        """From "LEAST:MOST". Raises: UsageError for anything else.

        Example:
          >>> ElasticLauncher.parse("2:8", print).most
          8
        """
        least, _, most = text.partition(":")
        if not (least.isdecimal() and most.isdecimal() and 1 <= int(least) <= int(most)):
            raise UsageError(f"--elastic takes LEAST:MOST members, such as 2:8, not {text!r}")
        return cls(int(least), int(most), note, begin)

    def check(self, settings: Settings) -> None:
        """Raises: UsageError or StrategyError for a job that members who come and go cannot do, and why."""
        workers = self.begin or settings.workers
        if not self.least <= workers <= self.most:
            raise UsageError(f"--elastic {self.least}:{self.most} does not allow --workers {workers}")
        check_strategy(named_strategy(settings.strategy))
        if settings.partition != "iid":
            raise UsageError(
                f"--partition {settings.partition} gives each worker data of its own, and with --elastic "
                "others compute the samples of a lost one: omit it"
            )
        if settings.against is not None or settings.backend != "tweed":
            raise UsageError("--elastic trains our side over our backend: omit --against and --backend")
        if settings.network is not None:
            raise UsageError("--elastic has no network of its own yet: omit --network")

    def prepare(self) -> None:
        testbed.preload("tweed.train.elastic_worker")
        launch.prepare()

    def launch(self, settings: Settings, folder: RunFolder, show: Show) -> None:
        """Trains our side from where it was left.

        Raises:
          RankFailed: all have died, or a worker cannot become a member; the others were ended.
        """
        self.check(settings)
        checkpoints = Checkpoints(folder.checkpoints(OURS), settings.steps)
        stored = (checkpoints.latest() or 0) * settings.every
        if stored >= settings.steps:
            return
        if stored:
            self.note(f"Goes on from step {stored}, written in epoch {checkpoints.epoch()}")
        folder.cut(OURS, stored)
        with tempfile.TemporaryDirectory() as rendezvous:
            begins = server.environment({"TWEED_JOIN": ""})
            with begins, testbed.Ranks(_votes, 1, Path(rendezvous) / "witness") as voter:
                limits, witness = (self.least, self.most), _said(voter)
                job = (settings, folder.path, limits, witness, Path(rendezvous) / "founders")
                with testbed.Ranks(_work, self.begin or settings.workers, *job) as ranks:
                    watched = _Watched(ranks, show, self.note)
                    while ranks.running():
                        for event in ranks.poll():
                            watched.handle(event)
                if not watched.done:
                    self.note(
                        "all workers of this command have left; others, which have joined, go on, and this "
                        "command decides with them who is a member, until they are gone"
                    )
                    voter.join(timeout=None)


@dataclass
class _Watched:
    """What the workers have told, and what follows from it."""

    ranks: testbed.Ranks
    show: Show
    note: Callable[[str], None]
    done: bool = False
    _addresses: dict[int, str] = field(default_factory=dict)
    _tries: Counter[int] = field(default_factory=Counter)

    def handle(self, event: testbed.Event) -> None:
        """Starts anew who has died."""
        rank = event.rank
        if isinstance(event, Failed):
            self._addresses.pop(rank, None)
            self._failed(event)
        elif isinstance(event, Ended):
            self._addresses.pop(rank, None)
            self.done = self.done or event.value
            if not event.value:
                self.note(f"worker {rank} has left in good order")
        elif isinstance(event.value, Here):
            if not self._addresses:
                self.note(f"Others join: tweed train --join {event.value.address}")
            self._addresses[rank] = event.value.address
        elif isinstance(event.value, In):
            self._tries[rank] = 0
        else:
            self.show(event.value)

    def _failed(self, event: Failed) -> None:
        if self.done:
            return  # it came too late to be let in, or died when all was over
        hopeless = isinstance(event.error, UsageError) or not self._addresses
        if hopeless or self._tries[event.rank] >= _TRIES:
            raise RankFailed(self.ranks.blame([event]))
        self._tries[event.rank] += 1
        self.note(
            f"{event.text.strip().splitlines()[-1]}; worker {event.rank} starts anew, and joins the others"
        )
        with server.environment({"TWEED_JOIN": ",".join(self._addresses.values())}):
            self.ranks.restart(event.rank)


def _said(voter: testbed.Ranks) -> str:
    """Where the witness is."""
    (event,) = voter.poll()
    if isinstance(event, Failed):
        raise RankFailed(event)
    address: str = event.value
    return address


def _votes(_rank: int, _size: int, state: Path) -> None:
    """Decides who is a member: so workers may be lost all but one at once."""
    from tweed.elastic.witness import Witness

    witness = Witness(f"{_host()}:0", state)
    testbed.say(witness.address)
    called_s = time.monotonic()
    while witness.epoch == 0 or time.monotonic() < called_s + _ALONE_S:
        witness.turn()
        if witness.is_called:
            called_s = time.monotonic()
    witness.close()


def _work(
    rank: int,
    size: int,
    settings: Settings,
    path: Path,
    limits: tuple[int, int],
    witness: str,
    rendezvous: Path,
) -> bool:
    """What a worker of the fork server does. Returns whether it has trained to the end."""
    from torch._C._distributed_c10d import FileStore

    from tweed.elastic import Elastic, join, start
    from tweed.train.elastic_worker import about

    metrics.call(path.name)
    folder = RunFolder(path)
    elastic = Elastic(*limits, about=about(settings, folder), witnesses=(witness,))
    if os.environ.get("TWEED_JOIN"):
        control = join(None, elastic)
    else:
        control = start(FileStore(str(rendezvous), size), rank, size, elastic)
    testbed.say(Here(control.address))
    return trains(settings, folder, control, testbed.say, lambda entered: testbed.say(In())).done


def _host() -> str:
    return os.environ.get("TWEED_HOST", "127.0.0.1")


def trains(
    settings: Settings, folder: RunFolder, control: Control, show: Show, noted: Noted
) -> ElasticWorker:
    """Trains as a member, to the end or until it has left."""
    from tweed.train.elastic_worker import ElasticWorker

    def enter(entered: Entered) -> None:
        if entered.rank == 0:
            write(folder.append_epoch, asdict(entered))
        noted(entered)

    def report(figures: dict[str, Any]) -> None:
        # Rank 0 may have died when it had reported, and before the others knew that it had.
        if any(row["step"] == figures["step"] for row in folder.figures()):
            return
        write(folder.append, figures)
        show(figures)

    def write(append: Show, line: dict[str, Any]) -> None:
        try:
            append(line)
        except OSError as error:  # a full disk ends no training
            log.warning("what belongs to step %d is not written: %s", line["step"], error)

    worker = ElasticWorker(settings, folder, report, control, enter)
    worker.run()
    return worker


def joined(address: str, runs: Path, argv: list[str]) -> tuple[Settings, RunFolder, Control]:
    """Calls a member of a run that goes on.

    Args:
      address: "host:port" of a member, or several with commas between.
      runs: folder of all runs: that one's is made in it where it is not there, as on another machine.

    Returns: the run's settings, its folder, and this process among the members.

    Raises:
      UsageError: there is another run of this name here.
      PeerLost: nobody answers there.
    """
    from tweed.data import get
    from tweed.elastic import Elastic, join
    from tweed.train.elastic_worker import told
    from tweed.train.tasks import row

    control = join(address or None, Elastic(1, 1))
    name, settings = told(control.elastic.about)
    get(row(settings.task).data, lambda line: None)
    folder = RunFolder(runs / name)
    if not (folder.path / "run.json").exists():
        folder.start(settings, argv, spread=True)
    elif folder.facts()["settings"] != settings.to_json():
        raise UsageError(
            f"{folder.path} is another run of that name: go to a folder without it, and join from there"
        )
    return settings, folder, control
