"""One line in a plain training loop: `tweed.attach(model, optimizer, strategy)`.

It asks strategy and arguments who trains together: a group (`tweed.group`), a hub and its workers
(`tweed.hub`), or members that come and go (`tweed.elastic.training`). What they share is in `tweed.hooks`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, overload

from tweed.errors import StrategyError, UsageError
from tweed.recipes.named import named_strategy
from tweed.strategy import Strategy

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch.distributed as dist
    from torch import nn
    from torch.optim import Optimizer

    from tweed.elastic import Control, Elastic
    from tweed.elastic.training.run import ElasticTraining
    from tweed.hooks.run import Run

__all__ = ["attach"]


@overload
def attach(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    strategy: Strategy | str = "every_step",
    *,
    elastic: Elastic | Control,
    bucket_bytes: int | None = None,
) -> ElasticTraining: ...


@overload
def attach(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    strategy: Strategy | str = "every_step",
    *,
    group: dist.ProcessGroup | None = None,
    hub: str | None = None,
    elastic: None = None,
    key_file: str | None = None,
    aggregator: bool | str = False,
    samples: float = 1.0,
    bucket_bytes: int | None = None,
    sync_buffers: bool = True,
) -> Run: ...


def attach(  # noqa: PLR0913 - options of a user, by their names
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    strategy: Strategy | str = "every_step",
    *,
    group: dist.ProcessGroup | None = None,
    hub: str | None = None,
    elastic: Elastic | Control | None = None,
    key_file: str | None = None,
    aggregator: bool | str = False,
    samples: float = 1.0,
    bucket_bytes: int | None = None,
    sync_buffers: bool = True,
) -> Run | ElasticTraining:
    """Lets the ranks of `group`, or the members of `hub`, train one model, each in its own plain loop.

        with tweed.attach(model, optimizer, "every_step") as run:
            for x, y in my_part_of_the_data:
                loss(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()

    At the end of `with` all ranks have one model, and no hook is left. Without `with`, `run.finish()` and
    `run.detach()` do that.

    All ranks begin with the parameters and buffers of rank 0, or if that is the strategy's server, of rank 1.
    What then happens is the strategy's:

    * It exchanges gradients: after `backward()` gradients are the average of all ranks', as with torch's
      DistributedDataParallel and with the same values (bit for bit at two ranks, to rounding above), so
      clipping and gradient scaling work as always. The exchange overlaps with the backward pass. Each
      `backward()` exchanges; a second one before the step adds to averages, which is right, and
      `run.no_sync()` saves the exchange. If all gradients are cleared instead, and no step is taken, the
      exchange is taken back: a batch that is skipped leaves nothing in a residual. Gradients become views
      into buckets; one that the program keeps is never written again. A parameter that this rank did not use
      counts as zero; one that no rank used keeps `grad = None`. Buffers become rank 0's at each exchange.
      Under "urgent" the same, bit for bit, but nobody waits before a gradient or a parameter is read: see
      docs/gradient_order.md. Under "factors" the same, equal to rounding: see docs/compression.md. Layers of
      class `torch.nn.Linear` are of a subclass of it until `detach`.
    * It exchanges steps, differences or models: gradients stay local; when the cadence decides so, parameters
      buffers become the average of all ranks' at the end of `optimizer.step()`, and so do parameters without
      gradients that the loop has moved; of whole numbers, which have no average, all take the first rank's.
      Optimizer state stays local. Every rank must take the same number of steps; a gradient
      scaler that skips one on one rank only breaks this.

    * It compresses: the same, with what the memory makes of it. Gradients are then exchanged when the
      backward pass has ended. Values that are not finite are never sent nor kept: gradients become
      NaN on all ranks, which a gradient scaler skips; a step that is taken raises `NonFinite`. Evaluate
      within `run.averaged()`. See docs/compression.md.

    The loop may give parameters new memory, or replace them by others of the same shape and dtype, which the
    optimizer must hold then; a parameter that leaves, comes or is cast is refused by name, at all ranks.

    A strategy with a transport, a server or an order gets a process group of its own, of backend "tweed",
    over the same ranks. What a transport loses of this rank's contributions is added to its next ones. A
    server has no data: see `Run.serve`.

    Args:
      model: a module with whole parameters (no DTensor), the same on every rank. Dtypes may be mixed.
      optimizer: the one that steps this model's parameters, or a list of several that step parts of it, each
        once per step. No other one may.
      strategy: a `Strategy`, or the name of one as for `named_strategy`.
      group: a torch process group of any backend; None is the default group. Under "tweed", buckets lie in
        memory that peers on the same host read and write in place.
      hub: "KEY@host:port" of a hub that `tweed.serve` runs: this process needs no group, comes when it likes,
        and may come back. The strategy must have a hub, and be the hub's own. See docs/hub.md.
      elastic: how many members there may be, who are lost, return and arrive while the others train:
        `tweed.elastic.Elastic(2, 8)`. This process finds them by TWEED_JOIN or torchrun's variables; or give
        the `Control` of `tweed.elastic.start` or `join`. The run that is returned deals the samples, see
        `ElasticTraining.batches` and docs/elastic.md.
      key_file: keeps this member's key, by which the hub knows it when it comes back; it is made if it is not
        there. None: TWEED_KEY_FILE, or a new key.
      aggregator: whether this member of `hub` may add up what others send, and hand the newest model on,
        beside its own training, if the strategy has `Hub(aggregators=...)`. True: the others reach it at the
        address by which it reaches the hub, on a port that is free; "host:port" says another one.
      samples: that a contribution of this rank to a hub counts as, where the aggregate weighs by samples; at
        least 0.
      bucket_bytes: exchanges begin when so much has come together; the first one at 1 MiB. None: 25 MiB, or
        1 MiB where steps are deferred.
      sync_buffers: keep buffers (such as the statistics of batch norm) equal on all ranks, as said above.

    Returns: the run; see `Run` for accumulation, statistics, checkpoints and `detach`.

    Raises:
      UsageError: no group runs, or the model and the optimizer do not belong together. Nothing was sent.
      StrategyError: the strategy is unknown, or asks for a stage that `attach` does not drive. Nothing was
        sent.
      ShapeMismatch: ranks hold different models or settings; every rank raises, naming each rank's value. Or
        the hub trains something else.
      PeerLost: the hub cannot be reached.

    Cost: a broadcast of the model now; then what the strategy sends. Memory: one more copy of the model for
      "gradient" and "model" (buckets; "gradient" needs no other memory for gradients), two for "step" and
      "difference"; with compression two or three more, see there, and where gradients are compressed a copy
      of what the memory keeps, until a step has used the exchange.
    """
    from tweed.group import run as group_run
    from tweed.group.connect import in_group
    from tweed.hooks.settings import Settings
    from tweed.hooks.setup import Setup
    from tweed.hub import run as hub_run
    from tweed.hub.connect import at_hub

    chosen = named_strategy(strategy) if isinstance(strategy, str) else strategy
    if not isinstance(chosen, Strategy):
        raise StrategyError(f"attach takes a Strategy, or the name of one, not {chosen!r}{_call(chosen)}")
    bucket_bytes = chosen.cadence.bucket_bytes if bucket_bytes is None else bucket_bytes
    if not 0 <= samples < math.inf:
        raise UsageError(f"attach: samples={samples!r}: give how many a contribution of this rank counts as")
    if group is not None and hub is not None:
        raise UsageError("attach: a member of a hub has no group: give group or hub, not both")
    if aggregator and hub is None:
        raise UsageError(
            f"attach: aggregator={aggregator!r} is for members of a hub without a group; in a group all "
            "ranks may be aggregators, and TWEED_HOST says where they listen"
        )
    if elastic is not None:
        if group is not None or hub is not None or key_file is not None or samples != 1:
            raise UsageError(
                "attach: members that come and go have no group and no hub, count their samples themselves, "
                "and Elastic(key_file=...) has their key: give elastic alone"
            )
        from tweed.elastic.training.run import ElasticTraining

        return ElasticTraining(model, optimizer, chosen, elastic, Settings(bucket_bytes, sync_buffers))
    settings = Settings(bucket_bytes, sync_buffers, samples)
    if hub is not None:
        connect = at_hub(chosen, hub, key_file, aggregator)
        return hub_run.run_at_hub(Setup(model, optimizer, chosen, connect, settings))
    setup = Setup(model, optimizer, chosen, in_group(chosen, model, group), settings)
    return group_run.run_in_group(setup) if chosen.hub is None else hub_run.run_in_group(setup)


def _call(given: object) -> str:
    name = getattr(given, "__name__", None)
    return f": write {name}()" if callable(given) and name else ""
