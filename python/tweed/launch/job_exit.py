"""When a job has ended, and with which status. Pure: a state machine that is told of ends."""

from __future__ import annotations

import signal
from collections.abc import Collection
from dataclasses import dataclass, field

from tweed.launch.job import Job

#: The others have so long to print that they have lost a rank, before they are ended.
GRACE_S = 1.0


@dataclass
class JobExit:
    """What has become of the ranks of a job.

    Attributes:
      status: exit code of the launcher; 0 while nothing has failed.
      culprit: who failed first, and how, in words; empty while nobody has.
    """

    job: Job
    status: int = 0
    culprit: str = ""
    _running: set[int] = field(init=False)
    _until: float | None = None

    def __post_init__(self) -> None:
        self._running = set(range(self.job.size))

    def handle_rank(self, rank: int, code: int, now: float) -> None:
        """A rank has ended, with an exit code as `subprocess` gives it: below 0 for a signal."""
        self._running.discard(rank)
        if code:
            host = self.job.host_of(rank).name
            how = f"was killed by {_name(-code)}" if code < 0 else f"ended with exit code {code}"
            self._fail(f"rank {rank} on {host} {how}", code if code > 0 else 128 - code, now)

    def handle_lost(self, number: int, why: str, now: float) -> None:
        """The session of a host has ended."""
        if lost := self._running & set(self.job.on(number)):
            self._running -= lost
            name = self.job.hosts[number].name
            self._fail(f"the connection to {name} has ended, and with it {named(lost)}: {why}", 1, now)

    def poll(self, now: float) -> float | None:
        """Seconds until it has to be asked again; 0: the job is over, and what still runs is to be ended."""
        if not self._running:
            return 0.0
        return None if self._until is None else max(0.0, self._until - now)

    def _fail(self, culprit: str, status: int, now: float) -> None:
        if not self.culprit:
            self.culprit, self.status, self._until = culprit, status, now + GRACE_S


def named(ranks: Collection[int]) -> str:
    """ "rank 3", or "ranks 2, 3"."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)))}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
