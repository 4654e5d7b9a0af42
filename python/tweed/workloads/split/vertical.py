"""Vertical features: parties have different columns of the same rows, each with lower layers of its own.

The owner of the labels leads: it has the upper layers, says which rows come next by their keys, joins what
the parties make of them, and gives each the gradient of its part. Pure: messages in, messages out.

    asked = leader.start(leader.keys[:32])              which rows are wanted, for all parties
    leader.handle(name, party.handle(asked))            a party's activations of them
    for name, data in leader.finish().items(): ...      gradients, for `handle` of each party
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tweed.errors import DataError, NonFinite, PeerLost, UsageError
from tweed.exchange.encoding import packed, unpacked
from tweed.exchange.stages import Cut, CutState, Sent
from tweed.workloads.split.client import Loss, exact
from tweed.workloads.split.server import refuse_batch_norm

Key = int | str


class VerticalParty:
    """Some columns of rows, and the lower layers for them.

    Args:
      name: of the party, in errors.
      lower, optimizer: any module of one input, and the optimizer of its parameters.
      keys: of its rows, each once, in any order.
      x: `[n, ...]`, its columns of these rows.
      cut: as at the leader.

    Raises: DataError for keys that are there twice, or of another number than rows.

    Example:
      >>> lower = nn.Linear(2, 3)
      >>> optimizer = torch.optim.SGD(lower.parameters(), 0.1)
      >>> party = VerticalParty("bank", lower, optimizer, ["b", "a"], torch.ones(2, 2))
      >>> party.keys
      ['b', 'a']
    """

    def __init__(
        self,
        name: str,
        lower: nn.Module,
        optimizer: torch.optim.Optimizer,
        keys: Sequence[Key],
        x: Tensor,
        cut: Cut | None = None,
    ) -> None:
        self.name, self.lower, self.optimizer, self.keys = name, lower, optimizer, list(keys)
        self._row_of = {key: row for row, key in enumerate(keys)}
        if len(self._row_of) != len(x) or len(keys) != len(x):
            raise DataError(
                f"party {name}: {len(keys)} keys, of which {len(self._row_of)} differ, for {len(x)} rows: "
                "each row has one key"
            )
        self._x, self.cut = x, exact() if cut is None else cut
        self._codec = self.cut.start_activations()
        self._under_way: tuple[Tensor, Sent] | None = None

    def handle(self, data: bytes) -> bytes | None:
        """A message of the leader: rows that are wanted, or the gradient of those before.

        Returns: activations of the rows; None behind a gradient, after a step of the optimizer.
        Raises: DataError names this party and the first key that it has not; NonFinite.
        """
        message = unpacked(data)
        if "keys" in message:
            return self._activations(message["keys"], message["wants_gradient"])
        assert self._under_way is not None  # the leader has asked for rows before
        (activations, sent), self._under_way = self._under_way, None
        self.optimizer.zero_grad()
        activations.backward(self.cut.decode_gradient(message["gradient"], sent))  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return None

    def _activations(self, keys: Sequence[Key], wants_gradient: bool) -> bytes:
        if missing := [key for key in keys if key not in self._row_of]:
            raise DataError(
                f"party {self.name} has no row {missing[0]!r}, and {len(missing)} are missing in all"
            )
        with torch.set_grad_enabled(wants_gradient):
            activations = self.lower(self._x[[self._row_of[key] for key in keys]])
        if not bool(activations.isfinite().all()):
            raise NonFinite(f"party {self.name}: the lower layers give activations that are not finite")
        encoded, sent, self._codec = self.cut.encode(activations, self._codec, wants_gradient)
        self._under_way = (activations, sent) if wants_gradient else None
        return bytes(packed({"activations": encoded}))


class VerticalLeader:
    """The owner of the labels, with the upper layers.

    Args:
      upper: of one input, the parties' activations side by side in the order of `parties`.
      optimizer: of its parameters.
      loss: the mean over rows.
      parties: the keys that each has, by its name.
      labels: by key; rows without one are in no batch.
      cut: as at parties.

    Attributes:
      keys: of rows that all parties have, and that have a label; sorted by their text.
      loss: of the step before.

    Raises: DataError where no row is left. UsageError for a layer with statistics of batches.

    Example:
      >>> upper = nn.Linear(3, 1)
      >>> optimizer, loss = torch.optim.SGD(upper.parameters(), 0.1), nn.functional.mse_loss
      >>> parties = {"bank": ["b", "a"], "shop": ["a"]}
      >>> leader = VerticalLeader(upper, optimizer, loss, parties, labels={"a": 1.0})
      >>> leader.keys
      ['a']
    """

    def __init__(
        self,
        upper: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Loss,
        parties: Mapping[str, Sequence[Key]],
        labels: Mapping[Key, Any],
        cut: Cut | None = None,
    ) -> None:
        refuse_batch_norm(upper)
        if not parties:
            raise UsageError("a leader without parties has no features: name one at least")
        self.upper, self.optimizer, self._criterion, self._labels = upper, optimizer, loss, labels
        self._parties = [*parties]
        self.keys = sorted(set(labels).intersection(*parties.values()), key=str)
        if not self.keys:
            raise DataError(
                f"no row is at all of {', '.join(parties)} and has a label: are the keys written alike?"
            )
        self.cut = exact() if cut is None else cut
        self._codecs: dict[str, CutState] = {name: self.cut.start_gradients() for name in parties}
        self._came: dict[str, tuple[Tensor, Sent]] = {}
        self._wanted: list[Key] = []
        self.loss = float("nan")

    def start(self, keys: Sequence[Key], wants_gradient: bool = True) -> bytes:
        """Asks all parties for these rows; forgets a step that has not ended."""
        self._came, self._wanted = {}, list(keys)
        return bytes(packed({"keys": self._wanted, "wants_gradient": wants_gradient}))

    def handle(self, party: str, data: bytes) -> None:
        """Activations of a party. Raises: DataError or NonFinite, which name it; nothing has changed then."""
        try:
            values, sent = self.cut.decode(unpacked(data)["activations"])
        except (DataError, KeyError, TypeError) as error:
            raise DataError(f"party {party} has sent no activations: {error}") from None
        if party not in self._parties or len(values) != len(self._wanted):
            raise DataError(
                f"party {party} has sent {len(values)} rows, and {len(self._wanted)} were asked for"
            )
        if not bool(values.isfinite().all()):
            raise NonFinite(f"activations of party {party} are not finite")
        self._came[party] = values, sent

    def outputs(self) -> Tensor:
        """What the upper layers give of the rows that were asked for, without a step.

        Raises: PeerLost names parties whose activations are missing.
        """
        with torch.no_grad():
            found: Tensor = self.upper(torch.cat([values for values, _ in self._joined()], 1))
        return found

    def finish(self) -> dict[str, bytes]:
        """Steps. Returns: by party, a message with its gradient.

        Raises: PeerLost names parties whose activations are missing; no layer has changed then.
        """
        parts = [(values.requires_grad_(), sent) for values, sent in self._joined()]
        y = torch.from_numpy(np.array([self._labels[key] for key in self._wanted]))
        loss = self._criterion(self.upper(torch.cat([values for values, _ in parts], 1)), y)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.loss, self._came, replies = loss.item(), {}, {}
        for name, (values, sent) in zip(self._parties, parts, strict=True):
            assert values.grad is not None  # the loss depends on it
            encoded, self._codecs[name] = self.cut.encode_gradient(values.grad, sent, self._codecs[name])
            replies[name] = bytes(packed({"gradient": encoded}))
        return replies

    def _joined(self) -> list[tuple[Tensor, Sent]]:
        if missing := [name for name in self._parties if name not in self._came]:
            raise PeerLost(
                f"a step of {len(self._wanted)} rows ends without {', '.join(missing)}: activations have not "
                "come, and no layer has changed. Start it again when all parties are back"
            )
        return [self._came[name] for name in self._parties]
