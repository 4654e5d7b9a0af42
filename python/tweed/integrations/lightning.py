"""tweed as a strategy of Lightning's Trainer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lightning.pytorch.strategies import DDPStrategy

from tweed.attach import attach

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from tweed.attach.run import Run
    from tweed.strategy import Strategy


class TweedStrategy(DDPStrategy):
    """DDP over the backend "tweed", or, with `exchange`, the plain model under `tweed.attach`.

        Trainer(accelerator="cpu", devices=2, strategy=TweedStrategy("local_steps:4")).fit(model, loader)

    Before it validates, and at the end, ranks' models are made equal. Batches are accumulated without an
    exchange (`accumulate_grad_batches`).

    Args:
      exchange: a strategy of tweed's, or its name; None: DistributedDataParallel.
      settings: of `tweed.attach`, where there is an `exchange`.
      kwargs: of Lightning's DDPStrategy.

    Attributes:
      run: while it fits with `exchange`; else None.

    Raises: `fit` raises as `tweed.attach` does.
    """

    def __init__(
        self, exchange: Strategy | str | None = None, settings: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(process_group_backend="tweed", **kwargs)
        self.run: Run | None = None
        self._exchange, self._settings = exchange, settings or {}

    def configure_ddp(self) -> None:
        """Wraps the model, unless tweed's strategy exchanges."""
        if self._exchange is None:
            super().configure_ddp()

    def setup(self, trainer: Trainer) -> None:
        """As DDPStrategy; then attaches the model if it is to be trained."""
        super().setup(trainer)
        if self._exchange is not None and self.optimizers and self.lightning_module is not None:
            self.run = attach(self.lightning_module, self.optimizers, self._exchange, **self._settings)

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Backward passes within exchange nothing."""
        block = super().block_backward_sync() if self.run is None else self.run.no_sync()
        with block:
            yield

    def on_validation_start(self) -> None:
        """One model on all ranks."""
        if self.run is not None:
            self.run.finish()

    def on_train_end(self) -> None:
        """One model on all ranks."""
        if self.run is not None:
            self.run.finish()

    def teardown(self) -> None:
        """Lets the model go."""
        if self.run is not None:
            self.run.detach()
        self.run = None
        super().teardown()
