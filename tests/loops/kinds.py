"""What kinds of strategies there are for a loop, and what each may refuse."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from tests.loops import program as ops
from tests.loops.program import Operation, Program, Step
from tweed.aggregate import All
from tweed.cadence import EveryStep, LocalSteps
from tweed.collective import Hub
from tweed.compress import Auto, Direct, ErrorReset, LazyAggregation, StepAhead
from tweed.recipes.named import named_strategy
from tweed.strategy import Strategy

#: Every named strategy for a group without server or hub, at settings that suit a model of 219 values.
NAMES = (
    "every_step",
    "urgent",
    "p3(16)",
    "bytescheduler(64, 32)",
    "prophet(32)",
    "factors",
    "local_steps:3",
    "diloco:3",
    "top_k:0.1",
    "local_top_k(2, 0.2)",
    "overlapped_top_k(2, 0.2)",
    "powersgd:2",
    "cser(4, 2, 3)",
    "saef(0.1, 1.0, 4)",
    "ef_sgd:4",
    "sparse:0.1",
    "sign",
    "quantised:8",
    "dct:0.8",
    "lag(0.25, 4)",
    "half",
    "ofedqit:0.5",
    "csea:4",
    "cser_pl(2, 3)",
    "qsparse_local(2, 2)",
    "local_sign:2",
    "auto",
    "auto:2",
    "ltp(lossless=True)",
)
#: Behind a hub, which is rank 0 of all ranks.
HUBS = {
    "hub": Strategy(collective=Hub(0, when=All())),
    "hub, movements": Strategy("difference", LocalSteps(2), collective=Hub(0, when=All())),
    "zeno_ps(0, 2, 0.25)": named_strategy("zeno_ps(0, 2, 0.25)"),
    "teasq(0, 2, 2)": named_strategy("teasq(0, 2, 2)"),
    "mlfabric": named_strategy("mlfabric"),
}
#: Members that come and go, by `attach(elastic=...)`.
MEMBERS = "members"
#: Those for which twenty lines of torch say what is right.
PLAIN = ("every_step", "urgent", "local_steps", "diloco", "hub", "hub, movements", MEMBERS)


class Kind(Enum):
    """How a strategy exchanges: gradients as they are, with a memory, with none; or models."""

    SUM = "gradients, summed"
    MEMORY = "gradients, with a memory"
    DIRECT = "gradients, without a memory"
    MODEL = "models or movements"
    HUB = "what workers hand to a hub"
    MEMBERS = "gradients, of members that come and go"


class Refusal(Enum):
    """Whether an error of tweed is right."""

    NEVER = "never"
    MAY = "may be"
    MUST = "must be"


@lru_cache
def strategy_of(name: str) -> Strategy:
    """The strategy that is named so."""
    return HUBS[name] if name in HUBS else named_strategy("every_step" if name == MEMBERS else name)


def is_plain(name: str) -> bool:
    """Twenty lines of torch say what is right."""
    return name.partition(":")[0] in PLAIN


def keeps_step(name: str) -> bool:
    """All ranks have one model after each exchange; behind other hubs each goes at its own pace."""
    hub = strategy_of(name).hub
    return hub is None or isinstance(hub.when, All)


def makes_group(name: str) -> bool:
    """It needs a group of its own, which `attach` makes."""
    return strategy_of(name).transport is not None or strategy_of(name).collective is not None


def kind_of(name: str) -> Kind:
    """The kind of the strategy that is named so."""
    if name == MEMBERS:
        return Kind.MEMBERS
    strategy = strategy_of(name)
    if strategy.hub is not None:
        return Kind.HUB
    if not strategy.exchanges_gradients:
        return Kind.MODEL
    if strategy.is_plain_sum:
        return Kind.SUM
    return Kind.DIRECT if isinstance(strategy.memory, Direct) else Kind.MEMORY


def is_timed(name: str) -> bool:
    """It goes by measured times: two runs of one program need not agree."""
    return isinstance(strategy_of(name).memory, Auto)


def measures(name: str) -> bool:
    """Its cadence goes by the size of what the optimizer has done."""
    return isinstance(strategy_of(name).memory, LazyAggregation)


def stands_off(name: str) -> bool:
    """Ranks' models are no common model after an exchange either."""
    return isinstance(strategy_of(name).memory, ErrorReset | StepAhead)


def every(name: str) -> int:
    """Steps per round."""
    cadence = strategy_of(name).cadence
    return 1 if isinstance(cadence, EveryStep) else getattr(cadence, "every", 1)


_NEVER, _MAY, _MUST = Refusal.NEVER, Refusal.MAY, Refusal.MUST
#: By operation, for each kind of strategy. What is not here is never refused.
_TABLE: dict[type, dict[Kind, Refusal]] = {
    ops.Cast: dict.fromkeys(Kind, _MUST),
    ops.Foreign: dict.fromkeys(Kind, _MUST),
    ops.Unfreeze: dict.fromkeys(Kind, _MUST),
    ops.Fewer: {Kind.SUM: _NEVER, Kind.MEMORY: _MUST, Kind.DIRECT: _MAY, Kind.MODEL: _MAY},
    ops.ClearSome: {Kind.SUM: _NEVER, Kind.MEMORY: _MUST, Kind.DIRECT: _MAY, Kind.MODEL: _NEVER},
    ops.Differ: {Kind.SUM: _MAY, Kind.MEMORY: _MUST, Kind.DIRECT: _MAY, Kind.MODEL: _MAY},
}


def may_refuse(operation: Operation, kind: Kind) -> Refusal:
    """Whether a strategy of a kind refuses an operation."""
    if isinstance(operation, Step) and operation.by == "backward":
        return _NEVER if kind is Kind.MODEL else _MUST
    return _TABLE.get(type(operation), {}).get(kind, _NEVER)


def refusal_of(program: Program) -> Refusal:
    """Whether it may end with an error of tweed."""
    kind = kind_of(program.strategy)
    found = {may_refuse(operation, kind) for operation in program.operations}
    if program.has(ops.Freeze) and program.has(ops.ClearSome):
        found.add(_MAY)  # a head that is frozen has no gradient to clear
        found.discard(_MUST)
    return next(each for each in (_MUST, _MAY, _NEVER) if each in found or each is _NEVER)
