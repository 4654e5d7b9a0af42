"""From what somebody typed to the settings of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tweed import testbed
from tweed.data import get, load
from tweed.errors import DataError, NoTestbed, UsageError
from tweed.recipes.named import named_strategy
from tweed.train.folder import RunFolder
from tweed.train.settings import Settings
from tweed.train.tasks import row

#: What a job takes where nothing is asked for; the task's row has steps, batch size and learning rate.
DEFAULTS: dict[str, Any] = {
    "task": "fashion-mnist",
    "workers": 4,
    "strategy": "every_step",
    "against": None,
    "seed": 0,
    "partition": "iid",
    "backend": "tweed",
    "network": None,
}


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asked for.

    Attributes:
      given: settings by name, as in `Settings`; those that are missing get their defaults.
      epochs: passes over the data, instead of `given["steps"]`.
      name: the run's; None to make one up.
      resume: go on with the run of that name.
      fallback: task to take if the data of the one asked for is not to be had.
      or_unshaped: go on without a network of its own if the one asked for cannot be built.
      argv: the command line.
      spread: its workers may be on several hosts, whatever this process can tell.
    """

    given: dict[str, Any]
    epochs: float | None = None
    name: str | None = None
    resume: bool = False
    fallback: str | None = None
    or_unshaped: bool = False
    argv: list[str] = field(default_factory=list)
    spread: bool = False

    def __post_init__(self) -> None:
        if self.resume and self.name is None:
            raise UsageError("--resume needs --name: which run is to go on?")
        if self.epochs is not None and "steps" in self.given:
            raise UsageError("--steps and --epochs say the same thing: give one of them")
        if self.epochs is not None and self.epochs <= 0:
            raise UsageError(f"epochs is {self.epochs}, but must be above 0")
        if self.name is not None and (not self.name or "/" in self.name or self.name.startswith(".")):
            raise UsageError(f"{self.name!r} cannot be the name of a run: it names a folder in runs/")
        if self.or_unshaped and self.given.get("network") is None:
            raise UsageError("--or-unshaped says what to do if --network cannot be had: give --network too")

    def with_workers(self, size: int) -> Request:
        """This request for `size` ranks that are there already; one of them may be the strategy's server.

        Raises: UsageError if another number was asked for, or a network, which only new workers can get.
        """
        if self.given.get("network") is not None:
            raise UsageError("--network starts its own workers: run `tweed train --network` without torchrun")
        workers = size - (named_strategy(self.given.get("strategy", "every_step")).collective is not None)
        asked = self.given.get("workers", workers)
        if asked != workers:
            raise UsageError(f"--workers {asked}, but the launcher has started {size}: omit the option")
        return replace(self, given=self.given | {"workers": workers})


def begin(request: Request, runs: Path, note: Callable[[str], None]) -> tuple[Settings, RunFolder]:
    """Starts or reopens a run, and makes sure that its data is there and its network can be built.

    Args:
      runs: folder of all runs.
      tell: called with lines about the search for data, and about a network that cannot be had.

    Raises:
      UsageError: the request cannot be carried out; nothing was written.
      NoTestbed: the network cannot be built.
      DataError: the data is not to be had.
    """
    if request.resume:
        folder = RunFolder(runs / str(request.name))
        given = request.given
        if request.epochs is not None:
            before = folder.resume(given)
            samples = len(load(row(before.task).data).train)
            given = given | {"steps": steps_of(request.epochs, samples, before)}
        settings = folder.resume(given)
        _try_network(settings)
        get(row(settings.task).data, note)
        return settings, folder
    settings = fill(request.given)
    folder = RunFolder(runs / (request.name or free_name(settings, runs)))
    folder.check_free()
    request, unshaped = _with_network(request, settings, note)
    settings = _with_data(request, fill(request.given), note)
    folder.start(settings, request.argv, unshaped, request.spread)
    return settings, folder


def _try_network(settings: Settings) -> None:
    """Builds the network once, for nothing but the error that names what is missing. 20 ms per worker."""
    if settings.links is not None:
        with testbed.opened(settings.links, settings.ranks):
            pass


def _with_network(
    request: Request, settings: Settings, note: Callable[[str], None]
) -> tuple[Request, str | None]:
    """The request, or one without network if that is allowed and has a reason; then the reason too."""
    try:
        _try_network(settings)
    except NoTestbed as error:
        if not request.or_unshaped:
            raise
        note(f"The network is not shaped: {error}")
        return replace(request, given=request.given | {"network": None}, or_unshaped=False), str(error)
    return request, None


def fill(given: dict[str, Any]) -> Settings:
    """Settings with defaults where nothing is given. Raises: UsageError for what makes no sense."""
    asked = DEFAULTS | given
    task = row(asked["task"])
    return Settings(**({"steps": task.steps, "batch_size": task.batch_size, "lr": task.lr} | asked))


def _with_data(request: Request, settings: Settings, note: Callable[[str], None]) -> Settings:
    """Finds the data, falls back if asked to, and turns epochs into steps."""
    try:
        get(row(settings.task).data, note)
    except DataError:
        if request.fallback is None:
            raise
        note(f"{settings.task} is not to be had here: training {request.fallback} instead.")
        settings = fill(request.given | {"task": request.fallback})
        get(row(settings.task).data, note)
    if request.epochs is None:
        return settings
    samples = len(load(row(settings.task).data).train)
    return fill(request.given | {"task": settings.task, "steps": steps_of(request.epochs, samples, settings)})


def steps_of(epochs: float, samples: int, settings: Settings) -> int:
    """Steps in which all workers together see `samples` samples `epochs` times, at least 1."""
    return max(1, round(epochs * samples / (settings.workers * settings.batch_size)))


def free_name(settings: Settings, runs: Path) -> str:
    """A name that no run has, made of task and strategy."""
    strategy = "".join(letter if letter.isalnum() else "_" for letter in settings.strategy).strip("_")
    names = [f"{settings.task}-{strategy}"]
    while (runs / names[-1]).exists():
        names.append(f"{names[0]}-{len(names) + 1}")
    return names[-1]
