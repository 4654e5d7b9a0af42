"""Methods by the keys that notes have. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tweed.aggregate import Cache, Each, Round, Weighted
from tweed.cadence import LocalSteps
from tweed.collective import Hub
from tweed.compress import Chain, Compressor, Direct, ErrorFeedback, Memory, Quantise, Relaxing, TopK
from tweed.recipes import teasq
from tweed.strategy import Strategy
from tweed.systems.teasq.tightening import Place

#: The accuracy whose time is compared.
TARGET = 0.7
OURS, WHOLE, RELAXING = "TEASQ", "TEA-Fed, differences", "relaxing"
FEDAVG, FEDASYNC = "FedAvg", "FedAsync"
#: FedAsync by the rate at which it mixes, of which the search takes the best.
MIXED = {share: f"{FEDASYNC}, α={share:g}" for share in (0.03, 0.1, 0.3, 0.6)}

#: Steps of a task; tasks under way at once, and contributions to a commit.
STEPS, TASKS = 30, 10
#: What the search for a schedule tightens: the share of values that is sent, and their bits.
LADDERS = ((0.5, 0.25, 0.1, 0.05), (8, 6, 4))
_BUFFER, _WEIGHTS = Hub(0, Cache(TASKS), TASKS), Weighted()


@dataclass(frozen=True, slots=True)
class Contender:
    """A method.

    Attributes:
      key: in notes.
      strategy: what it is.
      share: of a commit that the hub's model takes.
      few: it has five seeds, as no goal is about it.
    """

    key: str
    strategy: Strategy
    share: float = 1.0
    few: bool = False


def codec(place: Place) -> Compressor[Any]:
    """The largest values, in few bits, at a place of `LADDERS`."""
    density, bits = (ladder[rung] for ladder, rung in zip(LADDERS, place, strict=True))
    return Chain(TopK(float(density)), Quantise(int(bits), nearest=True))


def contenders(way: Sequence[Place]) -> Iterator[Contender]:
    """All of them; relaxing ones go `way` backwards, from strong to mild."""
    yield Contender(FEDAVG, _models(Hub(0, Round(TASKS)), Weighted(power=0.0)))
    for share, key in MIXED.items():
        yield Contender(key, _models(Hub(0, Each(), TASKS)), share)
    buffered = replace(_models(_BUFFER, Weighted(samples=False)), exchange="difference")
    yield Contender("FedBuff", buffered, few=True)
    yield Contender("TEA-Fed", _models(_BUFFER, proximal=0.01), 0.6, few=True)
    few, relaxing = codec((2, 0)), Relaxing(tuple(map(codec, reversed(way))), every=1)
    sparser = replace(relaxing, every=10)
    yield Contender(WHOLE, _differences(None, None))
    yield Contender("TEAS-Fed", _differences(ErrorFeedback(TopK(0.1)), None), few=True)
    yield Contender("TEAQ-Fed", _differences(Direct(Quantise(8)), Quantise(8)), few=True)
    yield Contender("fixed, as published", _differences(Direct(few), codec((0, 0))), 0.6, few=True)
    yield Contender("relaxing, as published", _differences(Direct(relaxing), sparser), 0.6)
    yield Contender(RELAXING, _differences(ErrorFeedback(relaxing), Quantise(8)))
    yield Contender(OURS, teasq(0, STEPS, TASKS))


def _models(hub: Hub, weights: Weighted = _WEIGHTS, proximal: float = 0.0) -> Strategy:
    return Strategy("model", LocalSteps(STEPS, None, proximal), collective=hub, aggregate=weights)


def _differences(up: Memory[Any] | None, down: Compressor[Any] | None) -> Strategy:
    models = _models(replace(_BUFFER, model=down), proximal=0.01)
    return replace(models, exchange="difference", compress=up)
