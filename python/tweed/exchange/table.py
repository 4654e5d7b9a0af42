"""Which exchange a strategy takes: the first row that fits.

A gradient is reduced within the backward pass, by a `GradientReducer`; models and movements are exchanged
after a step. A strategy with another way to exchange adds a row here, and its file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tweed.cadence import ByShards, Ordered
from tweed.compress import Direct, Identity, LazyAggregation
from tweed.exchange.base import Exchange
from tweed.exchange.cadence_driver import CadenceDriver
from tweed.exchange.coded_steps.gradients import CodedGradients
from tweed.exchange.communicator import Communicator
from tweed.exchange.factor_record import FactorRecord
from tweed.exchange.factors import FactoredGradients
from tweed.exchange.gradients import (
    AutotunedGradients,
    CompressedGradients,
    GradientReducer,
    Groups,
    SummedGradients,
    local_buckets,
    shared_buckets,
)
from tweed.exchange.model_averaging import ModelExchange
from tweed.exchange.movement import MovementExchange
from tweed.exchange.ordered import OrderedGradients
from tweed.exchange.overlapped import OverlappedExchange
from tweed.exchange.planned_gradients import PlannedGradients
from tweed.exchange.untrained import Untrained
from tweed.exchange.urgent_gradients import UrgentGradients
from tweed.order import GradientOrder
from tweed.strategy import Strategy


@dataclass(frozen=True, slots=True)
class Parts:
    """What an exchange is made from.

    Attributes:
      strategy: the strategy that is carried out.
      comm: the group.
      cadence: when to exchange.
      bucket_bytes: size of a full bucket.
      record: under `exchange="factors"`, of which factors gradients are the products.
    """

    strategy: Strategy
    comm: Communicator
    cadence: CadenceDriver
    bucket_bytes: int
    record: FactorRecord | None = None


def _ordered(parts: Parts, groups: Groups) -> GradientReducer:
    server, cadence = parts.strategy.collective, parts.strategy.cadence
    assert server is not None and isinstance(cadence, Ordered)  # the strategy was checked
    memory = parts.strategy.memory
    assert isinstance(memory, LazyAggregation | None)
    return OrderedGradients(local_buckets(groups), parts.comm, cadence, server.rank, memory)


def _coded_steps(parts: Parts, groups: Groups) -> GradientReducer:
    server, cadence, memory = parts.strategy.collective, parts.strategy.cadence, parts.strategy.memory
    assert server is not None and isinstance(cadence, ByShards)  # the strategy was checked
    assert isinstance(memory, Direct | None)
    return CodedGradients(local_buckets(groups), parts.comm, cadence, server.rank, memory)


def _factored(parts: Parts, groups: Groups) -> GradientReducer:
    assert parts.record is not None  # the run keeps one
    return FactoredGradients(groups, parts.comm, parts.cadence, parts.record)


def _autotuned(parts: Parts, groups: Groups) -> GradientReducer:
    buckets = shared_buckets(groups, parts.comm)
    return AutotunedGradients(buckets, parts.comm, parts.cadence, _memory(parts.strategy))


def _compressed(parts: Parts, groups: Groups) -> GradientReducer:
    return CompressedGradients(local_buckets(groups), parts.comm, parts.cadence, _memory(parts.strategy))


def _urgent(parts: Parts, groups: Groups) -> GradientReducer:
    return UrgentGradients(shared_buckets(groups, parts.comm), parts.comm, parts.cadence)


def _planned(parts: Parts, groups: Groups) -> GradientReducer:
    order = parts.strategy.order
    assert isinstance(order, GradientOrder)  # the strategy was checked
    return PlannedGradients(shared_buckets(groups, parts.comm), parts.comm, parts.cadence, order)


def _summed(parts: Parts, groups: Groups) -> GradientReducer:
    return SummedGradients(shared_buckets(groups, parts.comm), parts.comm, parts.cadence)


_Reducer = Callable[[Parts, Groups], GradientReducer]
_REDUCERS: tuple[tuple[Callable[[Strategy], bool], _Reducer], ...] = (
    (lambda s: s.cadence.keeps_last, _ordered),
    (lambda s: s.cadence.redundant, _coded_steps),
    (lambda s: s.exchange == "factors", _factored),
    (lambda s: s.memory is not None and s.memory.autotuned and _may_sum(s), _autotuned),
    (lambda s: not s.is_plain_sum, _compressed),
    (lambda s: s.order is not None, _planned),
    (lambda s: s.cadence.deferred, _urgent),
    (lambda s: True, _summed),
)


def gradient_reducer(parts: Parts, groups: Groups) -> GradientReducer:
    """What reduces the gradients of `groups`, per bucket the parameters by name."""
    return next(make for fits, make in _REDUCERS if fits(parts.strategy))(parts, groups)


def model_exchange(parts: Parts, params: Mapping[str, Tensor], rest: Untrained) -> Exchange:
    """What exchanges models, or movements of `params`, and averages the `rest`."""
    strategy, outer = parts.strategy, parts.strategy.cadence.outer
    common = (params, rest, parts.comm, parts.cadence, parts.bucket_bytes)
    if strategy.cadence.overlapped:
        return OverlappedExchange(*common, _memory(strategy), strategy.cadence)
    if strategy.is_plain_sum:
        return ModelExchange(*common, anchored=strategy.exchange in ("step", "difference"))
    return MovementExchange(*common, _memory(strategy), outer)


def _may_sum(strategy: Strategy) -> bool:
    """Nobody is ever silent, and a sum is all that is wanted."""
    return not strategy.cadence.may_be_silent and strategy.aggregate.in_network == "mean"


def _memory(strategy: Strategy) -> Any:
    return strategy.memory or Direct(Identity())
