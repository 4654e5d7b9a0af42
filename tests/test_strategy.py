"""Strategies: what fits together, what is refused, and what names mean."""

from __future__ import annotations

from typing import Any

import pytest

import tweed
from tweed.aggregate import Mean, Median, TrimmedMean
from tweed.cadence import (
    ByShards,
    EventTriggered,
    EveryStep,
    Intermittent,
    LocalSteps,
    Moves,
    Nesterov,
    Ordered,
    ServerPolicy,
)
from tweed.collective import Hub, Server
from tweed.compress import (
    Codec,
    Direct,
    ErrorFeedback,
    ErrorReset,
    Half,
    LazyAggregation,
    LowRank,
    Quantise,
    RandomBlocks,
    Sign,
    StepAhead,
    TopK,
)
from tweed.errors import StrategyError, UsageError
from tweed.recipes import every_step, local_steps, ltp
from tweed.recipes.named import described_strategies, named_strategies, named_strategy
from tweed.strategy import Strategy
from tweed.transport import Ltp


def test_the_default_is_plain_synchronous_training() -> None:
    assert Strategy() == every_step() == Strategy("gradient", EveryStep(), aggregate=Mean())


def test_a_strategy_is_a_value() -> None:
    assert local_steps(4) == local_steps(4) != local_steps(5)
    assert len({local_steps(4), local_steps(4), every_step()}) == 2
    assert eval(repr(local_steps(4)), {**globals()}) == local_steps(4)


@pytest.mark.parametrize("exchange", ["gradient", "factors", "step", "difference", "model"])
def test_every_step_can_exchange_anything(exchange: Any) -> None:
    assert Strategy(exchange=exchange, cadence=EveryStep()).exchange == exchange


@pytest.mark.parametrize("exchange", ["difference", "model"])
def test_local_steps_exchange_what_many_steps_have_done(exchange: Any) -> None:
    assert Strategy(exchange=exchange, cadence=LocalSteps(8)).cadence == LocalSteps(8)


@pytest.mark.parametrize("exchange", ["gradient", "step"])
def test_parts_that_do_not_fit_are_both_named(exchange: Any) -> None:
    with pytest.raises(StrategyError) as refused:
        Strategy(exchange=exchange, cadence=LocalSteps(8))
    text = str(refused.value)
    assert "cadence=LocalSteps(every=8" in text and f'exchange="{exchange}"' in text
    assert 'Exchange "difference" or "model"' in text


def test_an_unknown_exchange_lists_the_known() -> None:
    with pytest.raises(StrategyError, match="'weights' is none of gradient, factors, step"):
        Strategy(exchange="weights")  # type: ignore[arg-type]


@pytest.mark.parametrize("stage", ["cadence", "aggregate", "collective", "transport"])
@pytest.mark.parametrize("part", [7, EveryStep, Mean, Server, Ltp])
def test_a_part_of_no_stage_is_refused(stage: str, part: Any) -> None:
    with pytest.raises(StrategyError, match=f"{stage}=.* take one from tweed.{stage}"):
        Strategy(**{stage: part})


def test_a_transport_may_be_named() -> None:
    assert Strategy(transport="ltp") == Strategy(transport=Ltp()) == ltp()
    with pytest.raises(StrategyError, match="no transport 'pigeon'; there are ltp"):
        Strategy(transport="pigeon")


def test_a_server_is_a_part_of_its_own() -> None:
    assert Strategy(collective=Server(2), transport="ltp") == ltp(server=2)
    with pytest.raises(UsageError, match="server: rank=-1 is no rank"):
        Server(-1)


def test_parameters_must_not_lose_parts() -> None:
    with pytest.raises(StrategyError) as refused:
        Strategy(exchange="model", transport="ltp")
    text = str(refused.value)
    assert f"transport={Ltp()!r}" in text and 'exchange="model"' in text and "lossless=True" in text
    assert Strategy(exchange="model", transport=Ltp(lossless=True)).exchange == "model"


@pytest.mark.parametrize("strategy", [Strategy(), local_steps(), Strategy(transport=Ltp(lossless=True))])
def test_all_else_loses_nothing(strategy: Strategy) -> None:
    assert not strategy.may_lose
    assert ltp().may_lose


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("every_step", every_step()),
        ("every_step()", every_step()),
        ("local_steps", local_steps(8)),
        ("local_steps:4", local_steps(4)),
        ("local_steps(4)", local_steps(4)),
        (" local_steps( every = 4 ) ", local_steps(4)),
        ("local_steps:every=4", local_steps(4)),
        ("ltp", ltp()),
        ("ltp(server=0, fraction=0.9)", ltp(0, 0.9)),
    ],
)
def test_a_name_means_its_expression(text: str, strategy: Strategy) -> None:
    assert named_strategy(text) == strategy


@pytest.mark.parametrize("text", ["local_step", "local_steps[8]", "top-k"])
def test_a_name_that_is_nearly_one_is_offered(text: str) -> None:
    with pytest.raises(StrategyError, match=r"Did you mean (local_steps\(every=8\)|top_k\(density=0.01\))\?"):
        named_strategy(text)


def test_settings_that_are_no_values_are_said_to_be_none() -> None:
    with pytest.raises(StrategyError, match=r"'local_steps:four': settings are numbers, .*every=8"):
        named_strategy("local_steps:four")


def test_each_named_strategy_says_when_to_take_it() -> None:
    assert [name for name, what, when in described_strategies() if not (what and when.endswith("."))] == []


def test_a_strategy_shows_what_is_not_as_always() -> None:
    assert repr(Strategy()) == "Strategy()"
    assert repr(Strategy("model", LocalSteps(4))).startswith("Strategy(exchange='model', cadence=LocalSteps(")


def test_a_named_strategy_is_not_looked_for_among_the_public_names() -> None:
    with pytest.raises(AttributeError, match=r"attach takes the name 'local_sign' as a text"):
        tweed.local_sign  # noqa: B018


@pytest.mark.parametrize("text", ["", "no_such", "local steps", "local_steps[8]", "__import__('os')"])
def test_an_unknown_name_lists_the_known(text: str) -> None:
    with pytest.raises(StrategyError, match=r"Known are: every_step, local_steps, .*`tweed strategies`"):
        named_strategy(text)


@pytest.mark.parametrize(
    "text",
    [
        "local_steps:x",
        "local_steps(4, 5)",
        "local_steps(some=4)",
        "local_steps(4",
        "every_step:8",
        "local_steps(1))((",
    ],
)
def test_settings_that_do_not_fit_are_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(StrategyError, match=r"every_step\(\)|local_steps\(every=8\)"):
        named_strategy(text)


def test_settings_out_of_range_are_refused_by_name() -> None:
    with pytest.raises(StrategyError, match=r"'local_steps:0': .*give 1 or more"):
        named_strategy("local_steps:0")
    with pytest.raises(StrategyError, match=r"'ltp\(fraction=2\)': .*no share above 0"):
        named_strategy("ltp(fraction=2)")


def test_names_are_joined_where_each_sets_stages_of_its_own() -> None:
    assert named_strategy("half + ltp(server=1)") == Strategy(
        compress=Half(), collective=Server(1), transport="ltp"
    )
    assert named_strategy("lag(lr=1e+0)") == named_strategy("lag(lr=1.0)")
    with pytest.raises(
        StrategyError, match=r"compress is both ErrorFeedback.* and Direct.*; take one of them"
    ):
        named_strategy("top_k + half")


def test_the_list_of_names_can_be_read_back() -> None:
    found = [named_strategy(text) for text in named_strategies()]
    assert found[:3] == [every_step(), local_steps(), ltp()]
    assert len(set(map(repr, found))) == len(found)


def test_a_cadence_with_silent_ranks_needs_a_memory_that_says_what_they_count_for() -> None:
    for cadence in (EventTriggered(Moves(0.1)), Intermittent(probability=0.5)):
        with pytest.raises(StrategyError, match="what a silent rank"):
            Strategy(cadence=cadence)
    assert Strategy(cadence=Intermittent(probability=1.0)).compress is None


def test_a_cadence_that_weighs_needs_a_memory_that_can() -> None:
    with pytest.raises(StrategyError, match="cannot measure"):
        Strategy("step", EventTriggered(Moves(1.0)), StepAhead(TopK(0.1)))


def test_an_outer_optimiser_moves_one_model() -> None:
    cadence = LocalSteps(8, outer=Nesterov())
    with pytest.raises(StrategyError, match="no outer optimiser"):
        Strategy("difference", cadence, ErrorReset(TopK(0.1), TopK(0.5)))
    assert Strategy("difference", cadence, ErrorFeedback(TopK(0.1))).cadence == cadence


def test_ordered_transmission_needs_a_server() -> None:
    with pytest.raises(StrategyError, match="needs a server"):
        Strategy(cadence=Ordered(ServerPolicy(share=0.5)))
    assert named_strategy("ordered_gradient(server=1)").collective == Server(1)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"collective": None}, "collective=None: shards add up at one place"),
        ({"collective": Hub(0)}, "collective=Hub.*all workers begin a step"),
        ({"aggregate": Median()}, "aggregate=Median.*a hostile one would count as many"),
        ({"compress": ErrorFeedback(TopK(0.1))}, "another worker that counts instead"),
        ({"compress": Half(), "cadence": ByShards("nested", 2)}, "weights of a code"),
        ({"exchange": "model"}, "shards is their gradients"),
    ],
    ids=repr,
)
def test_what_shards_do_not_go_with_is_refused_by_name(parts: dict[str, Any], words: str) -> None:
    fits = {"cadence": ByShards(load=2), "collective": Server(0)}
    assert Strategy(**fits, compress=Half()).memory == Direct(Half())
    with pytest.raises(StrategyError, match=words):
        Strategy(**fits | parts)


@pytest.mark.parametrize("method", [Half(), Quantise(4), RandomBlocks(8, scaled=True)], ids=repr)
def test_a_compressor_that_needs_no_memory_may_come_alone(method: Codec) -> None:
    assert Strategy(compress=method) == Strategy(compress=Direct(method))


@pytest.mark.parametrize("method", [TopK(0.1), Sign(), LowRank(2), RandomBlocks(8)], ids=repr)
def test_a_compressor_that_needs_a_memory_may_not(method: Codec) -> None:
    with pytest.raises(StrategyError) as refused:
        Strategy(compress=method)
    assert f"compress={method!r}" in str(refused.value) and f"ErrorFeedback({method!r})" in str(refused.value)
    assert Strategy(compress=Direct(method)).memory == Direct(method)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"compress": ErrorFeedback(LowRank(2))}, "factors of LowRank"),
        ({"compress": LazyAggregation(TopK(0.1))}, "differences from what was sent before"),
        ({"cadence": Intermittent(probability=0.5), "compress": Half()}, "a silent rank counts"),
    ],
    ids=repr,
)
def test_an_aggregate_that_sees_each_contribution_needs_contributions(
    parts: dict[str, Any], words: str
) -> None:
    with pytest.raises(StrategyError, match=words) as refused:
        Strategy(aggregate=TrimmedMean(0.2), **parts)
    assert "TrimmedMean(f=0.2)" in str(refused.value)


def test_short_names_of_compression() -> None:
    assert named_strategy("top_k:0.01") == Strategy(compress=ErrorFeedback(TopK(0.01)))
    assert named_strategy("quantised:8").memory == ErrorFeedback(Quantise(8, nearest=True))
    assert named_strategy("powersgd:2").memory == ErrorFeedback(LowRank(2))
    assert named_strategy("half").memory == Direct(Half())
    with pytest.raises(StrategyError, match="density=7"):
        named_strategy("top_k:7")


MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"compress": ErrorReset(TopK(0.1), TopK(0.1))}, 'exchange="gradient": .* a gradient moves none'),
    ({"exchange": "model", "compress": Half()}, 'exchange="model": a model that is compressed'),
    ({"compress": TopK}, "compress=.* take one from tweed.compress"),
    ({"compress": 7}, "compress=7 is no part"),
]


@pytest.mark.parametrize(("parts", "words"), MISFITS)
def test_compression_that_does_not_fit_is_refused_with_the_reason(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(StrategyError, match=words):
        Strategy(**parts)


@pytest.mark.parametrize(
    ("part", "value", "reason"),
    [
        ("collective", Server(0), "one sum"),
        ("collective", Hub(0), "one sum"),
        ("cadence", LocalSteps(2), "several steps"),
        ("cadence", EventTriggered(Moves(0.01)), "silent rank"),
        ("compress", Half(), "a codec"),
        ("compress", ErrorFeedback(TopK(0.1)), "no residual"),
        ("compress", "auto", "a codec"),
        ("transport", "ltp", "row or column"),
        ("aggregate", Median(), "whole gradients"),
    ],
)
def test_what_does_not_go_with_factors_is_refused_with_the_reason(part: str, value: Any, reason: str) -> None:
    with pytest.raises(StrategyError, match=rf'{part}=.* does not go with exchange="factors": .*{reason}'):
        Strategy(**{"exchange": "factors", part: value})


def test_factors_go_where_nothing_is_lost() -> None:
    assert Strategy("factors", transport=Ltp(lossless=True)).exchanges_gradients
