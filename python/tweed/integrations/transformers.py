"""A strategy of tweed's in the Trainer of Transformers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from transformers import Trainer, TrainerCallback

from tweed.attach import attach

if TYPE_CHECKING:
    from accelerate.optimizer import AcceleratedOptimizer
    from torch import nn
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from tweed.hooks.run import Run
    from tweed.strategy import Strategy


def use(trainer: Trainer, strategy: Strategy | str = "every_step", **settings: Any) -> Attached:
    """From now on, what ranks exchange when `trainer` trains is the strategy's.

        trainer = Trainer(model, arguments, train_dataset=data)
        use(trainer, "local_steps:4")
        trainer.train()

    The Trainer no longer wraps its model in DistributedDataParallel. Before it evaluates or saves, and at the
    end, ranks' models are made equal. Batches are accumulated without an exchange
    (`gradient_accumulation_steps`).

    Args:
      trainer: made after `init_process_group("tweed")`.
      strategy, settings: as for `tweed.attach`.

    Returns: a callback of the trainer's, whose `run` is there while it trains.

    Raises: `trainer.train()` raises as `tweed.attach` does.
    """
    accelerator: Any = trainer.accelerator
    accelerator.prepare_model = partial(
        accelerator.prepare_model, evaluation_mode=True
    )  # that is: not in DDP
    attached = Attached(strategy, settings)
    trainer.add_callback(attached)
    return attached


class Attached(TrainerCallback):
    """Attaches the model when training begins, and lets it go when it ends.

    Attributes:
      run: None while the trainer does not train.
    """

    def __init__(self, strategy: Strategy | str, settings: dict[str, Any]) -> None:
        self.run: Run | None = None
        self._strategy, self._settings = strategy, settings

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: nn.Module,
        optimizer: AcceleratedOptimizer,
        **_: Any,
    ) -> None:
        """Attaches the strategy to model and optimizer."""
        plain = getattr(optimizer, "optimizer", optimizer)
        self.run = attach(model, plain, self._strategy, **self._settings)
        vars(model)["no_sync"] = self.run.no_sync  # what Accelerate enters to accumulate

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Before the model is evaluated or saved: one model on all ranks."""
        if self.run is not None and (control.should_evaluate or control.should_save):
            self.run.finish()

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: nn.Module,
        **_: Any,
    ) -> None:
        """One model on all ranks, without hooks."""
        if self.run is not None:
            self.run.finish()
            self.run.detach()
            vars(model).pop("no_sync", None)
        self.run = None
