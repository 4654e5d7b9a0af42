"""What is trained at a hub or at its standby, and all of it as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from tweed.exchange.encoding import packed, unpacked
from tweed.hub.live.hub import HubServer


@dataclass(frozen=True, slots=True)
class Site:
    """See above.

    Attributes:
      model, optimizer: at a standby with the hub's parameters and state, once these have come.
      server: the exchange of this run.
      place: "host:port", where it listens.
      terms: all that hub, standby and members must agree on, a line each.
    """

    model: nn.Module
    optimizer: Optimizer
    server: HubServer
    place: str
    terms: Sequence[str]

    @property
    def most_bytes(self) -> int:
        """No state has more: an optimizer keeps some values for each of the model's."""
        tensors = self.model.state_dict().values()
        model_bytes = sum(
            one.numel() * one.element_size() for one in tensors if isinstance(one, torch.Tensor)
        )
        return 16 * model_bytes + 64 * 2**20

    def snapshot(self) -> bytes:
        """All that another process needs to go on from here, between two commits."""
        known = self.server.hub.standby_state()
        state = {
            "version": known["version"],
            "last": known["last"],
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "codec": self.server.models.state(),
        }
        return bytes(packed(state))

    def load(self, data: bytes) -> dict[int, int] | None:
        """Goes on from the hub's, at a standby. Returns of each member the number of its last task that is in
        the model; None: the standby is ahead of it. Raises DataError if it cannot be read."""
        state = unpacked(data)
        standby = self.server.standby
        assert standby is not None  # it follows
        if state["version"] < standby.version:
            return None
        known = {"version": state["version"], "last": state["last"]}
        standby.load(known | {"gathered": standby.aggregate.start(), "units": 0})
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.server.models.load(state["codec"])
        return dict(state["last"])
