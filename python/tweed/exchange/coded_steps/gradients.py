"""The `GradientReducer` of blocks of samples: what a worker computes between two steps, and their mean."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from tweed.cadence import ByShards
from tweed.compress import Direct, Spec
from tweed.data.coding import work_of
from tweed.errors import NonFinite, UsageError
from tweed.exchange.bucket import GradientBucket
from tweed.exchange.coded_steps.choice import Choice, candidates
from tweed.exchange.coded_steps.live_server import Server
from tweed.exchange.coded_steps.live_worker import Worker
from tweed.exchange.coded_steps.server import CodedStepServer
from tweed.exchange.communicator import Communicator
from tweed.exchange.gradient_form import GradientForm
from tweed.exchange.gradients import GradientReducer


class CodedGradients(GradientReducer):
    """See above.

    Gradients of all kinds of floats are sent as float32, coded ones as float64.

    Args:
      buckets: of this rank.
      comm: a group with a server.
      cadence: the strategy's.
      server: the server's rank.
      memory: the strategy's, for gradients of blocks that are sent alone; None: gradients as they are.

    Raises: UsageError for a load that so many workers cannot have.
    """

    def __init__(
        self,
        buckets: list[GradientBucket],
        comm: Communicator,
        cadence: ByShards,
        server: int,
        memory: Direct | None,
    ) -> None:
        super().__init__(buckets)
        workers = [rank for rank in range(comm.size) if rank != server]
        choice = Choice(candidates(cadence), len(workers))
        works = [work_of(code, len(workers), load, cadence.share) for code, load in choice.among]
        spec = Spec(tuple(tuple(view.shape) for one in buckets for view in one.bucket.views))
        forms = [GradientForm(memory, spec, place) for place in range(len(workers))]
        self._side: Server | Worker
        if comm.owners.contributes:
            self._side = Worker(works, comm, server, spec.numel, forms[comm.owners.contributor], cadence)
        else:
            machine = CodedStepServer(works, choice, cadence.most_behind)
            self._side = Server(machine, comm, workers, spec.numel, forms)
        self._workers, self._broken = workers, -1

    def tasks(self) -> Iterator[Any]:
        """This rank's tasks of the step, one after the other; `done` is called between them."""
        return self._side.tasks()

    def done(self) -> None:
        """The gradient of the last task is in the buckets."""
        self._side.done(torch.cat([one.bucket.values.float() for one in self.buckets]).cpu())

    def start(self, gradients: GradientBucket) -> None:
        if gradients.given:
            raise UsageError(
                f"a gradient of {gradients.names[min(gradients.given)]!r} was computed outside of "
                "run.shards(), and would count for nothing: call backward() within it"
            )

    def finish(self) -> list[Sequence[bool]]:
        mean, self._broken = self._side.iterate()
        flats = [one.bucket.values for one in self.buckets]
        if mean is None:
            mean = torch.full((sum(flat.numel() for flat in flats),), math.nan)
        for flat, part in zip(flats, torch.split(mean, [flat.numel() for flat in flats]), strict=True):
            flat.copy_(part)
        return [[bool(view.any()) for view in one.bucket.views] for one in self.buckets]

    @property
    def late(self) -> int:
        """At the server, messages that came when their step was over; at a worker 0."""
        return self._side.late

    def flush(self) -> None:
        self._side.flush()

    def check_finite(self) -> None:
        """Raises NonFinite if a worker's gradient was not finite in the last exchange."""
        broken, self._broken = self._broken, -1
        if broken >= 0:
            raise NonFinite(
                f"NaN or infinity in a shard's gradient of rank {self._workers[broken]}. No gradient was "
                "used. Find its cause on that rank"
            )

    def state(self) -> dict[str, Any]:
        return self._side.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self._side.load(state)
