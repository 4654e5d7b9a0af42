"""A rule of tweed's as a strategy of Flower's: what the replies of a round come to, and whom to believe."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from torch import Tensor

from tweed.aggregate import Aggregate, Arrival, TrustedSamples, Verdict, conclude
from tweed.errors import UsageError

log = logging.getLogger("tweed")


class TweedStrategy(FedAvg):
    """Flower's FedAvg with another mean: one of `tweed.aggregate`.

        strategy = TweedStrategy(Krum(f=2), min_train_nodes=10, min_available_nodes=10)
        strategy.start(grid=grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=10)

    A client contributes the difference between the model in its reply and the one that it was sent, computed
    on so many samples as its metrics say ("num-examples"). The rule keeps its state from round to round. A
    client that is not believed has no part in the metrics of its round either. A round in which too few reply
    for the rule leaves the model as it is, and the log says so.

    Args:
      rule: such as `Krum(2)` or `TrimmedMean(0.2)`.
      settings: FedAvg's, by their names.

    Attributes:
      verdicts: on the replies of the last round; a sender is Flower's number of a node.

    Raises: UsageError for a rule that cannot hold with `min_train_nodes` clients, or takes samples that the
      server trusts (Zeno): Flower's has none.

    Cost: the server holds each reply of a round as float64, beside Flower's copy.
    """

    def __init__(self, rule: Aggregate[Any], **settings: Any) -> None:
        super().__init__(**settings)
        if isinstance(rule, TrustedSamples):
            raise UsageError(
                f"{rule!r} judges by samples that the server trusts, and Flower's server has none: take a "
                "rule that compares replies, such as Krum, or a hub of tweed's (docs/hub.md)"
            )
        rule.require(self.min_train_nodes)
        self._rule, self._state = rule, rule.start()
        self._sent = ArrayRecord()
        self.verdicts: tuple[Verdict, ...] = ()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Configures a round as FedAvg does."""
        self._sent = arrays
        messages: Iterable[Message] = super().configure_train(server_round, arrays, config, grid)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next model, None: it stays as it is; and the metrics of those that are believed."""
        # Flower's own check ends the run if one reply has other names than the rest.
        sound, _ = self._check_and_log_replies(replies, is_train=True, validate=False)
        good = [reply for reply in sound if self._fits(reply)]
        update = self._update(good, float(server_round)) if self._are_enough(len(good)) else None
        if update is None:
            return None, None
        believed = {verdict.sender for verdict in self.verdicts if verdict.weight > 0}
        contents = [reply.content for reply in good if reply.metadata.src_node_id in believed]
        return self._after(update), self.train_metrics_aggr_fn(contents, self.weighted_by_key)

    def _fits(self, reply: Message) -> bool:
        """It has the arrays that were sent, by name, and says of how many samples they are."""
        records, metrics = (
            list(kind.values()) for kind in (reply.content.array_records, reply.content.metric_records)
        )
        samples = metrics[0].get(self.weighted_by_key) if len(metrics) == 1 else None
        has_arrays = len(records) == 1 and records[0].keys() == self._sent.keys()
        if has_arrays and isinstance(samples, int | float) and 0 <= samples < math.inf:
            return True
        node, key = reply.metadata.src_node_id, self.weighted_by_key
        log.warning("node %d is left out: it has other arrays than were sent, or no %s", node, key)
        return False

    def _are_enough(self, count: int) -> bool:
        try:
            self._rule.require(count)
        except UsageError as error:
            log.warning("round is left out, the model stays as it is: %s", error)
            return False
        return count > 0

    def _update(self, replies: list[Message], now: float) -> Tensor | None:
        """What the rule makes of these replies; None: nobody is believed."""
        sent = _flat(self._sent, self._sent)
        for reply in replies:
            (arrays,) = reply.content.array_records.values()
            (metrics,) = reply.content.metric_records.values()
            value = _flat(arrays, self._sent)
            if value.shape == sent.shape:  # rules leave out what has another one
                value -= sent
            samples = float(metrics[self.weighted_by_key])
            arrival = Arrival(value, reply.metadata.src_node_id, samples=samples)
            self._state = self._rule.handle(arrival, self._state, now)
        update, self.verdicts, self._state = conclude(self._rule, self._state, now)
        for verdict in self.verdicts:
            if verdict.weight == 0:
                log.info("node %d does not count: %s", verdict.sender, verdict.reason.value)
        return None if update is None else torch.as_tensor(update)

    def _after(self, update: Tensor) -> ArrayRecord:
        """The model that was sent, moved by `update`; each array of the type that it had."""
        moved, place, found = _flat(self._sent, self._sent) + update, 0, ArrayRecord()
        for name, array in self._sent.items():
            old = torch.from_numpy(array.numpy().copy())
            new = moved[place : place + old.numel()].view(old.shape)
            found[name] = Array((new if old.is_floating_point() else new.round()).to(old.dtype).numpy())
            place += old.numel()
        return found


def _flat(arrays: ArrayRecord, order: Iterable[str]) -> Tensor:
    """All values, one array after the other in the order of these names, `[numel]` float64."""
    pieces = [torch.from_numpy(arrays[name].numpy().copy()).double().flatten() for name in order]
    return torch.cat(pieces) if pieces else torch.zeros(0, dtype=torch.float64)
