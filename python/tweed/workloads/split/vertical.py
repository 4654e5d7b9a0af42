"""Parties that have other columns of the same rows: one lower model each, and a leader with the labels.

    leader                                     party
    keys of the next batch               ->
                                         <-    activations of these rows
    their gradients                      ->

Activations and gradients cross by a link of `exchange.stage_link`, each in the codecs of its cut.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor, nn

from tweed.errors import DataError, PeerLost, UsageError
from tweed.exchange.stage_link import StageLink


def matched(keys: Sequence[Sequence[Hashable]]) -> list[list[int]]:
    """Where each party has the rows that all have, in the order of the first party.

    Args:
      keys: of each party's rows; no party has one twice.

    Raises: DataError for a key that a party has twice, with both places, or if no row is common.

    Example:
      >>> matched([["a", "b", "c"], ["c", "a"]])
      [[0, 2], [1, 0]]
    """
    places = []
    for party, own in enumerate(keys):
        found: dict[Hashable, int] = {}
        for row, key in enumerate(own):
            if found.setdefault(key, row) != row:
                raise DataError(
                    f"party {party} has the key {key!r} in rows {found[key]} and {row}: leave one out"
                )
        places.append(found)
    common = [key for key in keys[0] if all(key in own for own in places)]
    if not common:
        raise DataError("no row is at all parties: see that their keys are of one kind")
    return [[own[key] for key in common] for own in places]


class VerticalParty:
    """A party without labels: its lower model, and its columns.

    Args:
      lower: from its columns to activations.
      optimizer: of its parameters.
      link: to the leader.
    """

    def __init__(self, lower: nn.Module, optimizer: torch.optim.Optimizer, link: StageLink) -> None:
        self.lower, self.optimizer, self._link = lower, optimizer, link
        self._zero: Tensor | None = None

    def send(self, x: Tensor) -> None:
        """Sends the activations of a batch, `[rows, columns]`."""
        self._zero = self._link.send(self.lower(x))

    def step(self) -> None:
        """Waits for the gradients of what was sent, and takes a step.

        Raises: UsageError if nothing was sent; PeerLost and DeadlineExceeded where the leader is gone or
          late.
        """
        if self._zero is None:
            raise UsageError("a party's step is one of activations that were sent: call send() first")
        zero, self._zero = self._zero, None
        self.optimizer.zero_grad()
        zero.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


class VerticalLeader:
    """The party with the labels: its own lower model, if it has columns, and the upper one.

    Args:
      upper: from the activations of all parties, side by side, to outputs.
      optimizer: of the upper and of its own lower model.
      links: to the other parties, by their names.
      lower: of its own columns; None: it has none.
      loss: a mean over a batch, of outputs and labels.
    """

    def __init__(
        self,
        upper: nn.Module,
        optimizer: torch.optim.Optimizer,
        links: dict[str, StageLink],
        lower: nn.Module | None = None,
        loss: nn.Module | None = None,
    ) -> None:
        self.upper, self.optimizer, self._links, self.lower = upper, optimizer, links, lower
        self._loss = loss or nn.CrossEntropyLoss()

    def step(self, x: Tensor | None, labels: Tensor) -> float:
        """A step with the activations that the other parties have sent for these rows.

        Args:
          x: its own columns, `[rows, columns]`; None without a lower model.
          labels: `[rows]`.

        Returns: the loss.
        Raises: PeerLost, with the party's name, for one that is gone, and DataError for one that sends other
          rows or values that are not finite; no model of the leader has changed.
        """
        parts = [] if self.lower is None else [self.lower(x)]
        for name, link in self._links.items():
            try:
                part = link.receive()
            except PeerLost as error:
                raise PeerLost(f"party {name!r} is missing, and the step is not taken: {error}") from error
            if len(part) != len(labels) or not bool(part.isfinite().all()):
                raise DataError(
                    f"party {name!r} sends {len(part)} rows for {len(labels)}, or not finite values, "
                    "and the step is not taken: see that both have the same keys"
                )
            parts.append(part)
        self.optimizer.zero_grad()
        loss: Tensor = self._loss(self.upper(torch.cat(parts, 1)), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.item()
