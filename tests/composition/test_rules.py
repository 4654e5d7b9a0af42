"""Each rule of composition refuses what it is for, and names its parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from tweed.aggregate import Bucketing, Krum, Mean, Median, QFair, Zeno, ZenoPlusPlus, ZenoPS
from tweed.cadence import (
    ByShards,
    Cadence,
    Deferred,
    EventTriggered,
    EveryStep,
    Intermittent,
    LocalSteps,
    Moves,
    Nesterov,
    Ordered,
    ServerPolicy,
)
from tweed.cadence.every_step import EveryStepState
from tweed.collective import Hub, Server
from tweed.composition import OF_EXCHANGES, OF_PARTS, Rule
from tweed.compress import (
    Auto,
    ClippedNoise,
    Direct,
    ErrorFeedback,
    ErrorReset,
    Half,
    LazyAggregation,
    LocalResidual,
    LowRank,
    StepAhead,
    TopK,
)
from tweed.elastic.training import checks as member_checks
from tweed.errors import StrategyError
from tweed.hub import connect as member
from tweed.order import BoundedDelay, ByLayer
from tweed.strategy import Strategy

ORDERED, SHARDS, SILENT = Ordered(ServerPolicy(share=0.0)), ByShards(load=2), Intermittent(probability=0.5)
RESIDUAL, FACTORS = LocalResidual(TopK(0.1)), ErrorFeedback(LowRank(2))

#: What each of the rules refuses, in their order.
REFUSED: list[dict[str, Any]] = [
    {"exchange": "factors", "collective": Server(0)},
    {"exchange": "factors", "cadence": LocalSteps(2)},
    {"exchange": "factors", "compress": Half()},
    {"exchange": "factors", "transport": "ltp"},
    {"exchange": "factors", "aggregate": Median()},
    {"cadence": LocalSteps(2)},
    {"exchange": "model", "transport": "ltp"},
    {"compress": StepAhead(TopK(0.1))},
    {"cadence": SHARDS},
    {"cadence": SHARDS, "collective": Server(0), "aggregate": Median()},
    {"cadence": SHARDS, "collective": Server(0), "compress": FACTORS},
    {"cadence": SHARDS, "collective": Server(0), "compress": Direct(Half(), weight=2.0)},
    {"cadence": ORDERED},
    {"cadence": ORDERED, "collective": Server(0), "compress": Half()},
    {"cadence": ORDERED, "collective": Server(0), "compress": LazyAggregation(LowRank(2))},
    {"cadence": SILENT},
    {"exchange": "step", "cadence": EventTriggered(Moves(0.1)), "compress": RESIDUAL},
    {"exchange": "difference", "cadence": LocalSteps(2, outer=Nesterov()), "compress": RESIDUAL},
    {"exchange": "difference", "cadence": LocalSteps(2, delay=1), "compress": RESIDUAL},
    {"aggregate": Zeno(0.2)},
    {"aggregate": Bucketing(Zeno(0.2)), "collective": Hub(0)},
    {"aggregate": ZenoPlusPlus(), "exchange": "difference", "collective": Hub(0)},
    {"aggregate": ZenoPS(2), "exchange": "difference", "collective": Hub(0)},
    {"aggregate": QFair()},
    {"aggregate": QFair(), "collective": Hub(0, privacy=ClippedNoise(1.0))},
    {"exchange": "model", "collective": Hub(0, privacy=ClippedNoise(1.0))},
    {"aggregate": Median(), "collective": Hub(0, aggregators=1)},
    {"transport": "ltp", "collective": Hub(0, aggregators=1)},
    {"exchange": "difference", "compress": RESIDUAL, "collective": Hub(0, aggregators=1)},
    {"aggregate": Krum(), "collective": Hub(0)},
    {"exchange": "step", "collective": Hub(0)},
    {"cadence": SILENT, "compress": Half(), "collective": Hub(0)},
    {"compress": LazyAggregation(Half()), "collective": Hub(0)},
    {"cadence": Deferred(), "collective": Hub(0)},
    {"cadence": Deferred(), "compress": Half()},
    {"cadence": Deferred(), "transport": "ltp"},
    {"cadence": Deferred(), "aggregate": Median()},
    {"order": BoundedDelay(3)},
    {"order": ByLayer()},
    {"cadence": SILENT, "compress": Half(), "aggregate": Median()},
    {"compress": FACTORS, "aggregate": Median()},
]


@pytest.mark.parametrize(
    ("rule", "parts"),
    list(zip((*OF_EXCHANGES, *OF_PARTS), REFUSED, strict=True)),
    ids=lambda one: str(one)[:40],
)
def test_each_rule_is_the_first_to_refuse_something_and_names_its_parts(
    rule: Rule, parts: dict[str, Any]
) -> None:
    with pytest.raises(StrategyError) as refused:
        Strategy(**parts)
    text = str(refused.value)
    assert rule.why in text if isinstance(rule.why, str) else rule.parts[0] in text
    assert text.startswith(f"{rule.parts[0]}=")
    assert len(rule.parts) == 1 or f"does not go with {rule.parts[1]}" in text


@pytest.mark.parametrize("rules", [member_checks._RULES, member._ALONE])
def test_products_have_rules_that_allow_the_plainest_strategy_they_are_for(rules: tuple[Rule, ...]) -> None:
    plain = Strategy() if rules is member_checks._RULES else Strategy(collective=Hub(0))
    assert [rule.text(plain) for rule in rules if rule.refuses(plain)] == []


def test_the_strategy_itself_may_be_what_is_refused() -> None:
    assert member._ALONE[0].text(Strategy()).startswith("Strategy() has no hub")


@dataclass(frozen=True, slots=True)
class Twice(Cadence[EveryStepState]):
    """A cadence that says nothing but what it exchanges."""

    exchanges: ClassVar[frozenset[str]] = frozenset({"gradient"})
    reason: ClassVar[str] = "it is for gradients"

    def start(self) -> EveryStepState:
        return EveryStepState()

    def handle(self, event: Any, state: EveryStepState, now: float) -> EveryStepState:
        return EveryStep().handle(event, state, now)

    def poll(self, state: EveryStepState, now: float) -> Any:
        return EveryStep().poll(state, now)


def test_a_new_part_joins_by_its_properties() -> None:
    assert Strategy(cadence=Twice()).is_plain_sum
    assert Strategy(cadence=Twice(), collective=Hub(0)).hub == Hub(0)
    with pytest.raises(StrategyError, match=r'cadence=Twice\(\) does not go with exchange="step": it is for'):
        Strategy("step", Twice())
    with pytest.raises(StrategyError, match=r"cadence=Twice\(\) does not go with elastic=Elastic"):
        member_checks.check_strategy(Strategy(cadence=Twice()))


def test_parts_say_of_themselves_what_rules_ask() -> None:
    assert [Direct(Half()).memoryless, ErrorFeedback(Half()).memoryless] == [True, False]
    assert list(FACTORS.in_rounds) == [LowRank(2)] and not Auto((Half(),)).in_rounds
    assert not ErrorReset(Half(), Half()).one_model and Auto().one_model
    assert Bucketing(Bucketing(Zeno(0.2))).judge == Zeno(0.2) and Mean().judge == Mean()
    assert Hub(0).one_by_one and LocalSteps(3).round_steps == 3
