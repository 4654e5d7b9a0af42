"""What a run is made from: a model and its optimizers that were checked, in a context that was connected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from tweed import metrics
from tweed.exchange.cadence_driver import CadenceDriver
from tweed.exchange.communicator import Stats
from tweed.exchange.context import Context
from tweed.exchange.terms import terms
from tweed.hooks import checks
from tweed.hooks.settings import Connect, Settings
from tweed.hooks.trained import Trained
from tweed.strategy import Strategy

AnyContext = TypeVar("AnyContext", bound=Context)


class Setup(Generic[AnyContext]):
    """What a run of any role is made from. All ranks have one model then, where they have a group.

        setup = Setup(model, optimizer, strategy, in_group(strategy, model, None), Settings())

    Args:
      model, optimizer, strategy: as for `attach`.
      connect: finds the others, when this process has passed its checks.
      settings: of the run.
      spread: parameters may be spread over processes.

    Attributes:
      optimizers: at least one.
      stats: counters of the run.
      params: those that are trained.
      terms: all that ranks must agree on, a line each.
      context: of the process.
      cadence: when to exchange.

    Raises: as `attach`; nothing was sent before `connect`.
    Cost: a broadcast of the model, in a group.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Sequence[Optimizer],
        strategy: Strategy,
        connect: Connect[AnyContext],
        settings: Settings,
        *,
        spread: bool = False,
    ) -> None:
        self.optimizers = [optimizer] if isinstance(optimizer, Optimizer) else optimizer
        checks.check_model(model, self.optimizers, spread=spread)
        checks.check_real(model, strategy, elastic=spread)
        self.model, self.strategy, self.settings = model, strategy, settings
        self.stats = Stats()
        metrics.follow(self.stats)
        self.params = Trained(model)
        self.terms = terms(model, strategy, settings.agreed())
        self.context = context = connect(self.terms, self.stats)
        # A hub's model is the one that is trained; a server has none of its own.
        root = None if strategy.hub is None else strategy.hub.rank
        context.receive(context.broadcast([*model.parameters(), *model.buffers()], root))
        self.cadence = CadenceDriver(
            strategy.cadence, context.owners.contributor, context.owners.contributors
        )

    def untrained(self) -> dict[str, Tensor]:
        """What is kept equal on all ranks beside the parameters that are trained, by name, as it is now."""
        buffers = self.model.named_buffers() if self.settings.sync_buffers else ()
        return {**self.params.frozen(), **dict(buffers)}
