"""A strategy of tweed's in a loop of Accelerate's: `prepare` without DistributedDataParallel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tweed.attach import attach

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import nn
    from torch.optim import Optimizer

    from tweed.hooks.run import Run
    from tweed.strategy import Strategy


def prepare(
    accelerator: Accelerator,
    model: nn.Module,
    optimizer: Optimizer,
    *others: Any,
    strategy: Strategy | str = "every_step",
    **settings: Any,
) -> tuple[Any, ...]:
    """As `accelerator.prepare(model, optimizer, *others)`, but what ranks exchange is the strategy's.

        run, model, optimizer, loader = prepare(accelerator, model, optimizer, loader, strategy="cser")

    The loop stays as it is, `accelerator.accumulate(model)` included: backward passes within exchange
    nothing. After it, `run.finish()` gives all ranks one model.

    Args:
      accelerator: made after `init_process_group("tweed")`, so that it takes that group.
      model, optimizer: plain ones.
      others: loaders and schedulers.
      strategy, settings: as for `tweed.attach`.

    Returns: the run, the model on its device, and the others as Accelerate prepares them.

    Raises: as `tweed.attach`.
    """
    placed: nn.Module = accelerator.prepare_model(model, evaluation_mode=True)
    run: Run = attach(placed, optimizer, strategy, **settings)
    vars(placed)["no_sync"] = run.no_sync  # what Accelerate enters to accumulate
    return run, placed, *_each(accelerator.prepare(optimizer, *others))


def _each(prepared: Any) -> tuple[Any, ...]:
    return prepared if isinstance(prepared, tuple) else (prepared,)
