"""tweed as a strategy of Lightning's Trainer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback
from lightning.pytorch.strategies import DDPStrategy

from tweed.attach import attach
from tweed.errors import UsageError
from tweed.exchange.encoding import most_state_bytes
from tweed.exchange.values import gather

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer

    from tweed.hooks.run import Run
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


class KeepExchange(Callback):
    """Puts what a strategy of tweed's keeps into Lightning's checkpoints, and what it sends into its loggers.

        strategy = TweedStrategy("top_k:0.01")
        Trainer(devices=2, strategy=strategy, callbacks=[KeepExchange(), ModelCheckpoint(save_last=True)])

    A checkpoint that is written within an epoch has one model then, that of all ranks, and each rank goes on
    with what it had yet to send. Logged, of this rank: exchanges, bytes that went into them, and seconds in
    which training waited.

    Raises: `fit` raises UsageError when it goes on with other ranks, and as `Run.load_state_dict`.

    Cost: per checkpoint what `run.finish` sends, and each rank's state once to all.
    """

    def __init__(self) -> None:
        self._run: Run | None = None
        self._most_bytes = 0  # of a rank's state
        self._loaded: list[dict[str, Any]] = []

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Goes on with what the checkpoint has."""
        strategy = trainer.strategy
        self._run = strategy.run if isinstance(strategy, TweedStrategy) else None
        params = pl_module.parameters()
        self._most_bytes = most_state_bytes(sum(one.numel() * one.element_size() for one in params))
        if self._run is None or not self._loaded:
            return
        if len(self._loaded) != trainer.world_size:
            raise UsageError(
                f"the checkpoint has what {len(self._loaded)} ranks have yet to send, and there are "
                f"{trainer.world_size}: go on with as many, or omit KeepExchange() to begin a new exchange"
            )
        self._run.load_state_dict(self._loaded[trainer.global_rank])
        self._loaded = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Logs what the run has exchanged."""
        if self._run is None:
            return
        stats = self._run.stats
        figures = {"exchanges": stats.exchanges, "bytes": stats.bytes_exchanged, "waiting_s": stats.waiting_s}
        pl_module.log_dict({f"tweed/{name}": float(value) for name, value in figures.items()})

    def state_dict(self) -> dict[str, Any]:
        """The state of all ranks, which call this alike. They have one model then; so has the checkpoint,
        which refers to its tensors."""
        if self._run is None:
            return {}
        self._run.finish()
        return {"ranks": gather(None, self._run.state_dict(), most_bytes=self._most_bytes)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Kept until the model is attached."""
        self._loaded = state_dict.get("ranks", [])

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The run is over."""
        self._run = None
