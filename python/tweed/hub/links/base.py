"""What the live sides of a hub need of links: those of ranks, or of members that come when they like."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from torch import Tensor

from tweed.hub.machine.worker import Worker
from tweed.hub.wire.form import ContributionForm
from tweed.hub.wire.messages import EagerOffer, End, FromHub, FromWay, FromWorker


class HubLink(Protocol):
    """A worker's link to its hub.

    Attributes:
      most_bytes: no model has more, as it crosses.
      renewed: the link that came last is to another hub, which was the standby of the one before.
      keeps: there is a standby: what counts from now on is kept for it.
      forms: of a worker, how its contributions cross: what an aggregator reads those of others by.
    """

    most_bytes: int
    renewed: bool
    forms: Callable[[int], ContributionForm]

    @property
    def keeps(self) -> bool:
        """Whether there is a standby, for which what counts from now on is kept."""
        ...

    def send(self, message: FromWorker | EagerOffer) -> None:
        """Begins to send; a payload's value must stay as it is until it has left."""

    def receive(self) -> tuple[FromHub | FromWay, Tensor] | None:
        """Waits for the next message, of the hub or of a member that it has named, and what came with it,
        `[bytes]` uint8: a model, or nothing. None: the link had ended, and there is a new one; what was sent
        may not have arrived. Raises PeerLost if there is none."""
        ...

    def replicate(self, worker: Worker) -> None:
        """What `worker` keeps for a standby goes there, if there is one; what that has is forgotten."""

    def flush(self) -> None:
        """Waits until all that was sent has left."""

    def break_off(self) -> None:
        """A call was broken off, as by Ctrl-C, and what it has sent or heard is not known: the link ends, and
        `receive` makes another. That of a group ends its calls at all ranks."""

    def close(self) -> None:
        """Ends the link to the hub."""


class Linked(Enum):
    """What happens to a link beside messages."""

    JOINED = "it stands, and its member will say something"
    LEFT = "it has ended, and may come back"
    ABLE = "its member adds up what others send, if it is asked"


#: A member's number, and what has happened on its link.
News = tuple[int, FromWorker | Linked]


class MemberLinks(Protocol):
    """A hub's links to its workers.

    Attributes:
      most_bytes: no contribution has more, as it crosses.
      numel: how many values a sum has.
    """

    most_bytes: int
    numel: int

    @property
    def over(self) -> bool:
        """Nobody is left, and nobody will come."""
        ...

    @property
    def keys(self) -> Mapping[int, str]:
        """The keys of members, by number; empty where they have none."""
        ...

    @property
    def refused(self) -> Mapping[str, int]:
        """How many callers were turned away, by reason."""
        ...

    def worker(self, member: int) -> int:
        """Which of the workers a member is, for draws that workers take apart."""
        ...

    def next(self, until: float) -> Sequence[News]:
        """What has happened, by member, waiting for it until then by `time.monotonic()`."""
        ...

    def tell(self, member: int, message: FromHub, model: Tensor | None) -> None:
        """Begins to send; with a `Task` goes the model, `[bytes]` uint8, which nobody changes any more."""

    def flush(self) -> None:
        """Waits until all that was sent has left."""

    def end(self, end: End, model: Tensor) -> None:
        """Tells all members, also those that are away and soon come back."""

    def close(self) -> None:
        """Nobody comes in any more."""

    def state(self) -> dict[str, Any]:
        """For a checkpoint: who has which number."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state`."""
