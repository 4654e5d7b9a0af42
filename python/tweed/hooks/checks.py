"""What must hold before ranks train together: checked once, at `attach`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from weakref import WeakSet

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from tweed.composition import Rule, check
from tweed.errors import ShapeMismatch, UsageError
from tweed.exchange.shards import is_spread
from tweed.hooks.advice import IN_DDP
from tweed.strategy import Strategy

#: Models that a `Run` works on now.
attached: WeakSet[nn.Module] = WeakSet()


def check_group(group: dist.ProcessGroup | None) -> None:
    """Raises UsageError unless this process is in a group that runs."""
    if not (dist.is_available() and dist.is_initialized()):
        raise UsageError('no process group runs: call torch.distributed.init_process_group("tweed") first')
    if group is not None and dist.get_rank(group) < 0:
        raise UsageError("this process is not a member of the group given to attach")


def check_model(model: nn.Module, optimizers: Sequence[Optimizer], *, spread: bool = False) -> None:
    """Raises UsageError if they cannot be trained with `attach`. `spread`: parameters may be."""
    given: tuple[object, object] = (model, optimizers)  # users give anything
    many = isinstance(given[1], Sequence) and bool(given[1])
    if not (
        many and isinstance(given[0], nn.Module) and all(isinstance(one, Optimizer) for one in optimizers)
    ):
        second = ", ".join(type(one).__name__ for one in optimizers) if many else type(optimizers).__name__
        raise UsageError(
            f"attach({type(model).__name__}, {second}): attach takes a torch.nn.Module and then a "
            "torch.optim.Optimizer, or a list of them"
        )
    if isinstance(model, DistributedDataParallel):
        raise UsageError(IN_DDP.format("the model is in DistributedDataParallel"))
    if model in attached:
        raise UsageError("the model is attached already; call detach() of that run first")
    for name, tensor in model.named_parameters():
        _check_parameter(name, tensor, spread=spread)
    if not any(param.requires_grad for param in model.parameters()):
        raise UsageError("the model has no parameter that requires a gradient: there is nothing to exchange")
    trouble = "is not a parameter of the model; give attach the whole model"
    check_covered(optimizers, set(model.parameters()), trouble)


def check_real(model: nn.Module, strategy: Strategy, *, elastic: bool) -> None:
    """Raises UsageError for complex parameters where they would lose their imaginary part."""
    name = next((name for name, param in model.named_parameters() if param.is_complex()), None)
    if name is not None and (elastic or strategy.hub is not None or not strategy.is_plain_sum):
        raise UsageError(
            f"parameter {name!r} is complex, and codecs, hubs and members exchange real values: keep it as "
            "pairs, torch.view_as_real(...), and make them complex in forward(); or train in a group without "
            "compression, as by every_step or local_steps"
        )


def _check_parameter(name: str, param: nn.Parameter, *, spread: bool) -> None:
    if nn.parameter.is_lazy(param):
        raise UsageError(f"parameter {name!r} has no shape yet: run one forward pass before attach")
    if param.is_meta:
        raise UsageError(f"parameter {name!r} is on the meta device: give it memory before attach")
    if is_spread(param) and not spread:
        raise UsageError(
            f"parameter {name!r} is spread over ranks (DTensor); attach needs whole parameters, or "
            "elastic=Elastic(...), by which the ranks are one member of several, see docs/elastic.md"
        )


def check_covered(optimizers: Iterable[Optimizer], params: set[nn.Parameter], trouble: str) -> None:
    """Raises UsageError if one of the optimizers changes a parameter outside `params`."""
    for number, group in enumerate(group for one in optimizers for group in one.param_groups):
        for place, param in enumerate(group["params"]):
            if param.requires_grad and param not in params:
                which = f"parameter {place} in group {number} of the optimizer, of shape {list(param.shape)},"
                raise UsageError(f"{which} {trouble}")


def check_place(strategy: Strategy, model: nn.Module, size: int) -> None:
    """Raises StrategyError if the strategy does not suit a group of `size`, or where the model lies."""
    rank = 0 if strategy.collective is None else strategy.collective.rank
    devices = sorted({str(param.device) for param in model.parameters()} - {"cpu"})
    rules = (
        Rule(
            ("collective",),
            lambda s: s.collective and (rank >= size or size < 2),
            f"needs rank {rank} and at least one worker, and the group has only {size} ranks",
        ),
        Rule(
            ("aggregate",),
            lambda s: s.hub and s.aggregate.compares and size < 4,
            f"compares contributions, and {strategy.hub!r} has only {size - 1} workers: start at least three "
            "workers, or take another rule",
        ),
        Rule(
            ("privacy",),
            lambda s: s.privacy and rank,
            f"needs the hub at rank 0, and it is rank {rank}: a run begins with the model and the buffers of "
            "rank 0, which a worker would give away without noise. Let the hub be rank 0",
        ),
        Rule(
            ("transport",),
            lambda s: s.may_lose and devices,
            f"returns what was lost to memory of the host, and parameters are on {', '.join(devices)}: keep "
            "them on the CPU, or lose nothing: Ltp(lossless=True)",
        ),
    )
    check(strategy, rules)


def check_agreement(by_rank: list[list[str]]) -> None:
    """Raises ShapeMismatch for the first of the ranks' `terms` that differs; the text gives each rank's."""
    for line in zip_longest(*by_rank, fillvalue="nothing"):
        if len(set(line)) > 1:
            each = "; ".join(f"rank {rank} has {term}" for rank, term in enumerate(line))
            raise ShapeMismatch(f"attach: ranks do not hold the same model and settings: {each}")
