"""Links between a hub and its workers that are ranks of one process group: single messages.

A head is a message of seven numbers; what comes behind it is one message more. A link of a group does not
come back: if a rank is lost, all others raise PeerLost.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tweed.errors import DataError
from tweed.exchange.p2p import PeerMessages
from tweed.hub.links.base import Linked, News
from tweed.hub.machine.worker import Worker
from tweed.hub.wire.form import ContributionForm
from tweed.hub.wire.head import NUMBERS, follows, from_hub, from_worker, head_of
from tweed.hub.wire.messages import EagerOffer, End, FromHub, FromWorker, Leave, Payload

log = logging.getLogger("tweed")
_Wait = Callable[[dist.Work], None]


def _head(message: FromWorker | EagerOffer | FromHub, numbytes: int = 0) -> Tensor:
    return torch.tensor(head_of(message, numbytes), dtype=torch.float64)


class RankLink:
    """A worker's link to the rank `hub`: a `HubLink`.

    Args:
      group, wait: as for `PeerMessages`.
    """

    forms: Callable[[int], ContributionForm]

    def __init__(self, group: dist.ProcessGroup | None, wait: _Wait, hub: int) -> None:
        self.most_bytes, self.renewed, self.keeps = 0, False, False
        self._hub, self._messages = hub, PeerMessages(group, wait)
        self._came = torch.empty(NUMBERS, dtype=torch.float64)

    def send(self, message: FromWorker | EagerOffer) -> None:
        payload = message.value if isinstance(message, Payload) else None
        self._messages.send(_head(message, 0 if payload is None else payload.numel()), self._hub)
        if payload is not None and payload.numel():
            self._messages.send(payload, self._hub)

    def receive(self) -> tuple[FromHub, Tensor]:
        self._await(self._came)
        head = self._came.tolist()
        message, numbytes = from_hub(head), follows(head, self.most_bytes)
        if not numbytes:
            return message, torch.empty(0, dtype=torch.uint8)
        model = torch.empty(numbytes, dtype=torch.uint8)
        self._await(model)
        return message, model

    def replicate(self, worker: Worker) -> None:
        """Nothing: a group has no standby of its hub."""

    def flush(self) -> None:
        self._messages.flush()

    def break_off(self) -> None:
        self._messages.abort()

    def close(self) -> None:
        """Nothing: the group ends it."""

    def _await(self, tensor: Tensor) -> None:
        self._messages.expect("it", tensor, self._hub)
        self._messages.next(math.inf)


class RankLinks:
    """A hub's links to the other ranks of its group: `MemberLinks`. A member's number is its rank.

    Args:
      group, wait: as for `PeerMessages`.
      hub: this rank.
      size: of the group.
    """

    def __init__(self, group: dist.ProcessGroup | None, wait: _Wait, hub: int, size: int) -> None:
        self.most_bytes = self.numel = 0
        self._workers = [rank for rank in range(size) if rank != hub]
        self._there = set(self._workers)
        self._messages = PeerMessages(group, wait)
        self._heads: dict[int, Tensor] = {}
        self._payloads: dict[int, Tensor] = {}

    @property
    def over(self) -> bool:
        """Whether all workers have left."""
        return not self._there

    @property
    def keys(self) -> Mapping[int, str]:
        """Always empty, as ranks have no keys."""
        return {}

    @property
    def refused(self) -> Mapping[str, int]:
        """Always empty, as ranks make no calls that could be refused."""
        return {}

    def worker(self, member: int) -> int:
        return self._workers.index(member)

    def next(self, until: float) -> Sequence[News]:
        if not self._heads:
            self._heads = {rank: torch.empty(NUMBERS, dtype=torch.float64) for rank in self._workers}
            for rank in self._workers:
                self._messages.expect(("head", rank), self._heads[rank], rank)
            return [(rank, Linked.JOINED) for rank in self._workers]
        came = self._messages.next(until)
        if came is None:
            return []
        assert isinstance(came, tuple)  # that is how they are named
        what, rank = came
        message = self._message(rank, what == "payload")
        return [] if message is None else [(rank, message)]

    def tell(self, member: int, message: FromHub, model: Tensor | None) -> None:
        self._messages.send(_head(message, 0 if model is None else model.numel()), member)
        if model is not None and model.numel():
            self._messages.send(model, member)

    def flush(self) -> None:
        self._messages.flush()

    def end(self, end: End, model: Tensor) -> None:
        for rank in self._there:
            self.tell(rank, end, model)
        self.flush()

    def close(self) -> None:
        """Nothing: the group ends them."""

    def state(self) -> dict[str, Any]:
        """Ranks have their numbers."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Does nothing, as the links of ranks keep no state."""

    def _message(self, rank: int, whole: bool) -> FromWorker | None:
        """What `rank` has sent; None: its payload comes next. Who sends what cannot be is left out."""
        head, message = self._heads[rank].tolist(), None
        try:
            numbytes = follows(head, self.most_bytes)
            if numbytes and not whole:
                self._payloads[rank] = torch.empty(numbytes, dtype=torch.uint8)
                self._messages.expect(("payload", rank), self._payloads[rank], rank)
                return None
            empty = torch.empty(0, dtype=torch.uint8)
            message = from_worker(head, self._payloads.pop(rank, empty))
        except DataError as error:
            log.warning("rank %d is left out: %s", rank, error)
            message = Leave()
        if isinstance(message, Leave):
            self._there.discard(rank)
        else:
            self._messages.expect(("head", rank), self._heads[rank], rank)
        return message
