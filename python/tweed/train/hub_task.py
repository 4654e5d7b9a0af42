"""A task behind a hub: what `tweed serve` and `tweed join` do.

runs/NAME/hub.key          the hub's key, by which members know it when it comes back
runs/NAME/hub.address      where it listens, so that it is found there again
runs/NAME/commits.jsonl    a line per commit: whose contributions, how old, with which weight, score and why;
                           who was dropped before as too old; and the keys of members that are new there
runs/NAME/events.log       if it is asked for, all that the hub's machine was given: see `tweed.server.replay`
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tweed
from tweed.cadence import LocalSteps
from tweed.data import get
from tweed.errors import StrategyError, UsageError
from tweed.files import write_atomic
from tweed.hub.replay import Replay, replay
from tweed.links.address import Credentials, HubAddress
from tweed.links.client import job
from tweed.recipes.named import named_strategy
from tweed.strategy import Strategy
from tweed.train import checkpoint
from tweed.train.folder import RunFolder
from tweed.train.loop import Figures, interval
from tweed.train.settings import OURS, Settings
from tweed.train.shard import Shard, optimizer_step
from tweed.train.tasks import row

#: What members need of the settings.
_SAID = ("task", "strategy", "workers", "batch_size", "lr", "seed", "partition")
#: The hub's learning rate, by what is exchanged: differences are added as they are, of models the middle is
#: taken.
_RATES = {"difference": 1.0, "model": 0.5}


@dataclass(frozen=True, slots=True)
class Admission:
    """Where a hub listens and whom it lets in; see `tweed.serve`."""

    listen: str | None
    members: list[str] | None = None
    most: int | None = None
    fewest: int = 1
    replicas: tuple[str, ...] = ()
    replica_of: str | None = None


def with_hub(name: str) -> Strategy:
    """The strategy of that name. Raises StrategyError if it has no hub."""
    strategy = named_strategy(name)
    if strategy.hub is None:
        raise StrategyError(f"{name} has no hub: serve one that has, such as teasq")
    return strategy


class HubTask:
    """The hub of a task, with a folder for what comes of it.

    Args:
      settings: the job; `steps` are commits, `workers` into how many parts the data is partitioned.
      folder: of the run; goes on from the checkpoint that is in it.
      admission: where it listens.
      lr: of its optimizer, plain SGD; None: 1 where differences are exchanged, 0.5 where models are, and
        that of the members where gradients are.
      log: keeps one of all that the hub's machine is given. One that is there is gone on with in any case.

    Raises: StrategyError if the strategy has no hub.
    """

    def __init__(
        self,
        settings: Settings,
        folder: RunFolder,
        admission: Admission,
        lr: float | None = None,
        log: bool = False,
    ) -> None:
        strategy, self._keeps_log = with_hub(settings.strategy), log
        self._settings, self._folder = settings, folder
        self._every = interval(settings.steps)
        self._shard = Shard(settings.task, settings.batch_size, 0, settings.workers, settings.partition)
        torch.manual_seed(settings.seed)
        self._model = self._shard.model()
        rate = _RATES.get(strategy.exchange, settings.lr) if lr is None else lr
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=rate)
        said = {name: value for name, value in settings.to_json().items() if name in _SAID}
        self.run = tweed.serve(
            self._model,
            self._optimizer,
            strategy,
            listen=admission.listen or self._listened(),
            key_file=str(folder.path / "hub.key"),
            members=admission.members,
            most=admission.most,
            fewest=admission.fewest,
            job=said,
            replicas=admission.replicas,
            replica_of=admission.replica_of,
        )
        write_atomic(self._address, self.run.address)
        self._seconds, self._began = 0.0, math.nan
        self._named: set[int] = set()  # members whose keys are in the log of commits
        cadence = strategy.cadence
        self._each = settings.batch_size * (cadence.every if isinstance(cadence, LocalSteps) else 1)
        self._samples = 0  # of what was committed; a cadence without a number of steps counts as one
        if (state := checkpoint.load(folder.checkpoints(OURS))) is not None:
            self._load(state)

    def serve(self, show: Callable[[dict[str, Any]], None]) -> None:
        """Trains to the end, and shows figures now and then. Time counts from the first commit on."""

        def after(version: int) -> None:
            if math.isnan(self._began):
                self._began = time.monotonic() - self._seconds
            self._log(version)
            self._samples += len(self.run.contributions) * self._each
            if version % self._every == 0 or version == self._settings.steps:
                show(self._store(version))

        log = self._folder.events if self._keeps_log or self._folder.events.exists() else None
        self.run.serve(commits=self._settings.steps, after=after, log=log)

    @property
    def _address(self) -> Path:
        return self._folder.path / "hub.address"

    def _listened(self) -> str:
        """Where an earlier process of this run did."""
        if not self._address.exists():
            return "127.0.0.1:0"
        return HubAddress.parse(self._address.read_text()).place

    def _log(self, version: int) -> None:
        contributions = [asdict(one) for one in self.run.contributions]
        fresh = {one["member"] for one in contributions} - self._named
        keys = self.run.keys if fresh else {}
        self._named |= fresh
        self._folder.append_commit(
            {
                "version": version,
                "contributions": contributions,
                "dropped": list(self.run.dropped),
                "keys": {member: keys[member] for member in sorted(fresh)},
            }
        )

    def _store(self, version: int) -> dict[str, Any]:
        """Evaluates, and keeps a checkpoint: a hub that is started again goes on from there."""
        self._seconds = time.monotonic() - self._began
        figures = self._figures(version)
        self._folder.append(figures)
        state = {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "side": self.run.state_dict(),
            "seconds": self._seconds,
            "samples": self._samples,
        }
        checkpoint.save(self._folder.checkpoints(OURS), version, state)
        return figures

    def _load(self, state: Mapping[str, Any]) -> None:
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.run.load_state_dict(state["side"])
        self._seconds, self._samples = state["seconds"], state["samples"]

    def _figures(self, version: int) -> dict[str, Any]:
        stats, seconds = self.run.stats, max(self._seconds, 1e-9)
        self._model.eval()
        loss, right, count = self._shard.scores(self._model, row(self._settings.task).test_samples).tolist()
        self._model.train()
        crossed = (stats.bytes_exchanged + stats.bytes_answered) // max(1, self.run.known)
        return asdict(
            Figures(
                side=OURS,
                step=version,
                samples=self._samples,
                seconds=self._seconds,
                loss=None,
                samples_per_s=self._samples / seconds,
                bytes_per_worker=crossed,
                aside_bytes_per_worker=0,
                link_bytes_per_worker=None,
                waiting_s=None,
                delivered=None,
                compression=None,
                test_loss=loss / count,
                accuracy=right / count,
            )
        )


def replayed(folder: RunFolder) -> tuple[nn.Module, Replay]:
    """The model of a hub that kept a log, from that alone, and its commits. Raises as `server.replay`."""
    settings = Settings.from_json(folder.facts()["settings"])
    model = Shard(settings.task, settings.batch_size, 0, settings.workers, settings.partition).model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)  # the log has the hub's
    return model, replay(folder.events, model, optimizer, with_hub(settings.strategy))


def join(
    hub: str,
    key_file: str | None,
    aggregator: bool | str,
    show: Callable[[int, float], None],
    note: Callable[[str], None],
) -> int:
    """Trains as a member of the hub at "KEY@host:port", on a part of the data, until the hub ends it.

    Args:
      key_file, aggregator: as for `tweed.attach`.
      show: called now and then with the steps done and the last loss.
      note: called with lines about the search for data.

    Returns: the steps done.

    Raises: UsageError if the hub does not say what members are to do; and as `tweed.attach` and `data.get`.
    """
    said = job(HubAddress.parse(hub), Credentials.of(key_file))
    if said is None or set(said) != set(_SAID):
        raise UsageError(
            f"the hub at {hub} does not say what its members are to do, or is of another version of tweed: "
            "`tweed join` is for hubs of `tweed serve`; elsewhere call tweed.attach(..., hub=...)"
        )
    settings = Settings(**said, steps=1, against=None, backend="tweed", network=None)
    get(row(settings.task).data, note)
    torch.manual_seed(settings.seed)
    data = (settings.task, settings.batch_size)
    model = Shard(*data, 0, settings.workers, settings.partition, settings.seed).model()
    optimizer = Shard(*data, 0, settings.workers).task.optimizer(model.parameters(), settings.lr)
    run = tweed.attach(model, optimizer, settings.strategy, hub=hub, key_file=key_file, aggregator=aggregator)
    shard = Shard(*data, run.worker % settings.workers, settings.workers, settings.partition, settings.seed)
    try:
        while not run.over:
            step = run.stats.steps
            loss = optimizer_step(optimizer, lambda: shard.loss(model, shard.batch(run.stats.steps)))
            if loss is not None and step % 50 == 0:
                show(step, float(loss))
    finally:
        run.detach()
    return run.stats.steps
