"""What a job is asked to do, as one plain value that is stored with the run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tweed.cadence import LocalSteps
from tweed.data import Partition
from tweed.errors import UsageError
from tweed.recipes.named import named_strategy
from tweed.testbed import Network

#: Label of our own side in figures and folders.
OURS = "tweed"
#: What our side can be compared with, and how it is called in a report.
OPPONENTS = {"ddp-gloo": "PyTorch DDP on Gloo"}

#: Torch backends that our side may run on.
BACKENDS = ("tweed", "gloo")


@dataclass(frozen=True, slots=True)
class Settings:
    """A job. Equal settings give equal numbers on equal software.

    Attributes:
      task: a name in `tasks.TASKS`.
      workers: number of ranks that have data.
      strategy: as for `tweed.named_strategy`.
      against: a name in `OPPONENTS`, or None to train our side alone.
      steps: optimizer steps of each side.
      batch_size: samples per worker and step.
      lr: learning rate at the start; it falls to zero along half a cosine.
      seed: of the model, the partition and the batches.
      partition: as for `tweed.data.Partition.parse`.
      backend: torch backend of our side.
      network: as for `testbed.Network.parse`, for all sides; None: this host's own, not shaped.
    """

    task: str
    workers: int
    strategy: str
    against: str | None
    steps: int
    batch_size: int
    lr: float
    seed: int
    partition: str
    backend: str
    network: str | None

    def __post_init__(self) -> None:
        for name in ("workers", "steps", "batch_size"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, but must be at least 1")
        if not 0 < self.lr < math.inf:
            raise UsageError(f"lr is {self.lr}, but must be above 0")
        if self.against is not None and self.against not in OPPONENTS:
            raise UsageError(f"cannot compare with {self.against!r}; there is {', '.join(OPPONENTS)}")
        if self.backend not in BACKENDS:
            raise UsageError(
                f"workers cannot run on backend {self.backend!r}; there are {', '.join(BACKENDS)}"
            )
        if self.network is not None:
            object.__setattr__(self, "network", str(Network.parse(self.network)))
        Partition.parse(self.partition)
        self._check_server()

    def _check_server(self) -> None:
        server = self.server
        if server is not None and server > self.workers:
            ranks = f"{self.workers} workers and a server are {self.ranks} ranks"
            raise UsageError(f"{ranks}, and none of them is rank {server}")
        if server is not None and (self.against or self.backend != "tweed"):
            other = self.against or self.backend
            raise UsageError(f"{self.strategy} has a rank that is no worker, and {other} cannot have one")

    @property
    def server(self) -> int | None:
        """The rank that has no data, if the strategy has one."""
        part = named_strategy(self.strategy).collective
        return None if part is None else part.rank

    @property
    def every(self) -> int:
        """Steps of a worker from one exchange to the next, where the strategy counts them; else 1."""
        cadence = named_strategy(self.strategy).cadence
        return cadence.every if isinstance(cadence, LocalSteps) else 1

    @property
    def ranks(self) -> int:
        """Number of processes: the workers, and the server if there is one."""
        return self.workers + (self.server is not None)

    @property
    def sides(self) -> dict[str, str]:
        """The sides in the order in which they run: label and title."""
        over = "" if self.backend == "tweed" else f" over {self.backend}"
        ours = {OURS: f"tweed {self.strategy}{over}"}
        return ours if self.against is None else ours | {self.against: OPPONENTS[self.against]}

    @property
    def links(self) -> Network | None:
        """`network` as a value."""
        return None if self.network is None else Network.parse(self.network)

    def lr_at(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        return self.lr * 0.5 * (1.0 + math.cos(math.pi * step / self.steps))

    def to_json(self) -> dict[str, Any]:
        """The settings as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Settings:
        """The inverse of `to_json`. Raises: UsageError if a value is missing or unknown."""
        if set(values) != {item.name for item in fields(cls)}:
            raise UsageError("the stored settings are those of another version of tweed; start a new run")
        return cls(**values)


def differences(stored: Settings, given: Mapping[str, Any]) -> list[str]:
    """Says of each value in `given` that it is not as `stored` has it."""
    values = stored.to_json()
    return [
        f"{name} was {values[name]}, not {value}" for name, value in given.items() if values[name] != value
    ]
