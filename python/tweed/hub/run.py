"""The runs of a hub and of its workers, in a group or without one."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from tweed.aggregate import Verdict
from tweed.exchange.communicator import Communicator
from tweed.exchange.terms import terms
from tweed.hooks.run import Run
from tweed.hooks.setup import Setup
from tweed.hub.connect import WorkerContext
from tweed.hub.live.contribution import Contribution
from tweed.hub.live.group_links import link_to_hub, links_to_workers
from tweed.hub.live.hub import HubServer
from tweed.hub.live.trusted import TrustedLoss, warn_of_rate
from tweed.hub.live.worker import HubWorker


def run_in_group(setup: Setup[Communicator]) -> Run:
    """The run of a rank in a group one of whose ranks is the hub: that of the hub, or of a worker."""
    comm, strategy = setup.context, setup.strategy
    assert strategy.hub is not None  # the caller looked
    if not comm.owners.contributes:
        links = links_to_workers(comm, strategy.hub)
        return HubServerRun(setup, HubServer(setup.params, comm, strategy, links))
    link, samples = link_to_hub(comm, strategy.hub), setup.settings.samples
    return HubWorkerRun(setup, HubWorker(setup.params, comm, setup.cadence, strategy, link, samples))


def run_at_hub(setup: Setup[WorkerContext]) -> HubWorkerRun:
    """The run of a worker without a group. Raises PeerLost if the hub is lost before the first task."""
    context, samples = setup.context, setup.settings.samples
    worker = HubWorker(setup.params, context, setup.cadence, setup.strategy, context.link, samples)
    worker.begin()  # its model is another one than the hub's, as a rule
    return HubWorkerRun(setup, worker)


class HubWorkerRun(Run):
    """The run of a worker of a hub."""

    def __init__(self, setup: Setup[Any], worker: HubWorker) -> None:
        self._worker = worker
        super().__init__(setup, worker)

    @property
    def over(self) -> bool:
        """The hub has ended training, and the model is its last; steps do not change it any more."""
        return self._worker.over

    def report_loss(self, loss: float) -> None:
        """Takes the loss of the batch, for a rule by losses: the first one between two exchanges."""
        self._worker.report_loss(float(loss))

    def epsilon(self, delta: float = 1e-5) -> float:
        """How private the data of this worker are; infinite without `Hub(privacy=...)`, see `Run.epsilon`."""
        hub = self.strategy.hub
        if hub is None or hub.privacy is None:
            return math.inf
        return float(hub.privacy.epsilon(self._worker.noisy, delta))


class HubServerRun(Run):
    """The run of a hub."""

    def __init__(self, setup: Setup[Any], server: HubServer) -> None:
        self._server = server
        super().__init__(setup, server)

    def serve(
        self,
        steps: int = 1,
        trusted: TrustedLoss | None = None,
        commits: int | None = None,
        after: Callable[[int], None] = lambda version: None,
        log: str | os.PathLike[str] | None = None,
    ) -> None:
        """Serves until all workers have left, or `commits` are reached; `steps` do not count. See `Run`."""
        for optimizer in self._optimizers:
            warn_of_rate(self.strategy, optimizer)
        if log is not None:
            agreed = terms(self._model, self.strategy, {})
            self._server.keep_log(log, agreed, self._optimizers.only("a log").state_dict())
        self._server.serve(self._optimizers.step, trusted, commits, after)

    @property
    def verdicts(self) -> Sequence[Verdict]:
        """On the contributions of the last update: with which weight each counted, and why."""
        return self._server.verdicts

    @property
    def contributions(self) -> Sequence[Contribution]:
        """The contributions of the last update: whose, how old, with which weight each counted, and why."""
        return self._server.contributions

    @property
    def dropped(self) -> Sequence[int]:
        """Whose contributions were dropped between the last two updates."""
        return self._server.dropped
