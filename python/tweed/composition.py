"""What goes with what: one table of rules, read where a strategy is built.

A part says by plain properties what it needs and what it gives; the contracts of the stages list them. A rule
is a row: the part that the error names, what that does not go with, when, and why. The first one that refuses
is the error. No row asks for the type of a part, so that a new part joins by its properties.

Members that come and go, and others that strategies are for, have rows of their own:

    check(strategy, [Rule(("transport", "elastic=Elastic(...)"), lambda s: s.transport is not None, "...")])
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from tweed.errors import StrategyError

if TYPE_CHECKING:
    from tweed.strategy import Strategy

#: What ranks exchange: gradients before the optimizer's step; the same, of matrices as the factors whose
#: product they are, where that is less; the step that each optimizer took; how far each model has moved since
#: the last exchange; the models themselves.
Exchange = Literal["gradient", "factors", "step", "difference", "model"]
EXCHANGES: tuple[str, ...] = get_args(Exchange)


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that does not go with another.

    Args:
      parts: an attribute of the strategy, which the error names first, and what that does not go with:
        another attribute, or words. Without the second, `why` says it all; without both, of the strategy.
      refuses: whether a strategy breaks the rule.
      why: the reason and what to take instead, or what makes this text of a strategy.

    Example:
      >>> from tweed.strategy import Strategy
      >>> silent = Rule(("cadence", "compress"), lambda s: s.compress is None, "there is no memory")
      >>> silent.text(Strategy())
      'cadence=EveryStep() does not go with compress=None: there is no memory'
    """

    parts: tuple[()] | tuple[str] | tuple[str, str]
    refuses: Callable[[Strategy], object]
    why: str | Callable[[Strategy], str]

    def text(self, strategy: Strategy) -> str:
        """What the error says of a strategy that breaks the rule."""
        why = self.why(strategy) if callable(self.why) else self.why
        named = [_named(strategy, part) for part in self.parts] or [repr(strategy)]
        return f"{' does not go with '.join(named)}{': ' if len(named) > 1 else ' '}{why}"


def check(strategy: Strategy, rules: Iterable[Rule]) -> None:
    """Raises StrategyError by the first of the rules that the strategy breaks."""
    for rule in rules:
        if rule.refuses(strategy):
            raise StrategyError(rule.text(strategy))


def _named(strategy: Strategy, what: str) -> str:
    if not hasattr(strategy, what):
        return what
    value = getattr(strategy, what)
    return f'exchange="{value}"' if what == "exchange" else f"{what}={value!r}"


def _kinds(exchanges: Collection[str]) -> str:
    return " or ".join(f'"{kind}"' for kind in EXCHANGES if kind in exchanges)


def _adds_up(strategy: Strategy) -> bool:
    """Whether members may add up what others send to the hub."""
    return strategy.hub is not None and strategy.hub.aggregators > 0


def _one_by_one(strategy: Strategy) -> bool:
    """Whether a hub makes an update of each contribution."""
    return strategy.hub is not None and strategy.hub.one_by_one


def _steps(strategy: Strategy) -> int:
    """How many a worker takes from one contribution to the next."""
    return strategy.cadence.round_steps or 1


def _rests_on_means(strategy: Strategy) -> bool:
    """Whether what is sent means something only beside what all other ranks send."""
    return strategy.memory is not None and bool(strategy.memory.in_rounds)


def _sent_before(strategy: Strategy) -> str:
    assert strategy.memory is not None  # the rule asked
    if strategy.memory.sends_differences:
        what = "differences from what was sent before"
    else:
        what = f"factors of {strategy.memory.in_rounds[0]!r}"
    return (
        f"ranks send {what}, of which only a mean is the mean of what they stand for. Take another "
        "compressor, or Mean()"
    )


#: Of what is exchanged; `compress` is what was given, and may be a codec alone. A gradient is `G^T X` at each
#: rank.
OF_EXCHANGES = (
    Rule(
        ("collective", "exchange"),
        lambda s: s.exchange == "factors" and s.collective is not None,
        "it answers with one sum, and the sum of several ranks' products has no factors with few rows, so "
        'that the answer is a whole matrix. Leave it out, or exchange "gradient"',
    ),
    Rule(
        ("cadence", "exchange"),
        lambda s: s.exchange == "factors" and "factors" not in s.cadence.exchanges,
        "what a model has moved by in several steps, or what a silent rank has sent before, is no product of "
        "the factors of this step's gradient. Take EveryStep()",
    ),
    Rule(
        ("compress", "exchange"),
        lambda s: s.exchange == "factors" and s.compress is not None,
        "a codec rounds or leaves out values of the gradient, and what that does to factors is multiplied "
        "with the other ones, so that no residual of values makes it good. Compress nothing, or exchange "
        '"gradient"',
    ),
    Rule(
        ("transport", "exchange"),
        lambda s: s.exchange == "factors" and s.may_lose,
        "a value of a factor that is lost is missing in a whole row or column of the gradient, and returns "
        'as no value of the next one\'s factors. Lose nothing, Ltp(lossless=True), or exchange "gradient"',
    ),
    Rule(
        ("aggregate", "exchange"),
        lambda s: s.exchange == "factors" and s.aggregate.in_network != "mean",
        "only of a mean are all ranks' factors, one below the other, the factors. Another rule compares "
        "whole gradients, for which each rank's would be multiplied out. Take Mean(), or exchange "
        '"gradient"',
    ),
    Rule(
        ("cadence", "exchange"),
        lambda s: s.exchange not in s.cadence.exchanges,
        lambda s: f"{s.cadence.reason}. Exchange {_kinds(s.cadence.exchanges)}, or take another cadence",
    ),
    Rule(
        ("transport", "exchange"),
        lambda s: s.may_lose and s.exchange == "model",
        "it may lose parts of what ranks contribute, and a model must not lose parameters. Exchange "
        '"gradient", "step" or "difference", or lose nothing: Ltp(lossless=True)',
    ),
)

#: Of what becomes of contributions; `compress` is a memory by now.
OF_PARTS = (
    Rule(
        ("compress", "exchange"),
        lambda s: s.memory is not None and s.exchange not in s.memory.exchanges,
        lambda s: f"{s.memory.reason}. Exchange {_kinds(s.memory.exchanges)}, or compress nothing",  # type: ignore[union-attr]
    ),
    # What comes first of a shard counts, and the rest is thrown away.
    Rule(
        ("cadence", "collective"),
        lambda s: s.cadence.redundant and (s.collective is None or s.hub is not None),
        "shards add up at one place and at one model, for which all workers begin a step with it. Give "
        "collective=Server(0)",
    ),
    Rule(
        ("cadence", "aggregate"),
        lambda s: s.cadence.redundant and s.aggregate.in_network != "mean",
        "of a shard the worker counts that is first, so that a hostile one would count as many; and a "
        "combination of shards cannot be judged by one of them. Take Mean()",
    ),
    Rule(
        ("cadence", "compress"),
        lambda s: s.cadence.redundant and s.memory and (not s.memory.memoryless or _rests_on_means(s)),
        "what a packet leaves out of a shard is in the one of another worker that counts instead. Take "
        "Direct, or compress nothing",
    ),
    Rule(
        ("cadence", "compress"),
        lambda s: s.cadence.redundant and s.memory and (s.cadence.coded or s.memory.weight != 1),
        "weights of a code, which may be thousands, multiply what a packet is off. Take "
        'code="uncoded", or compress nothing',
    ),
    # A silent rank's part in an exchange is up to the server or the memory; a plain sum has none for it.
    Rule(
        ("cadence",),
        lambda s: s.cadence.keeps_last and s.collective is None,
        "needs a server that hears ranks one by one: give collective=Server(0)",
    ),
    Rule(
        ("cadence", "compress"),
        lambda s: s.cadence.keeps_last and s.memory and not s.memory.sends_differences,
        "a rank counts with all that it has sent, and what a packet leaves out is in the next difference. "
        "Take LazyAggregation",
    ),
    Rule(
        ("cadence", "compress"),
        lambda s: s.cadence.keeps_last and _rests_on_means(s),
        "its factors rest on means over all ranks, and the server hears them one by one. Take another "
        "compressor",
    ),
    Rule(
        ("cadence", "compress"),
        lambda s: s.cadence.may_be_silent and not s.cadence.keeps_last and s.memory is None,
        "what a silent rank counts for is undefined. Give a memory, such as "
        "LazyAggregation(Identity(by_ranges=True))",
    ),
    Rule(
        ("cadence", "compress"),
        lambda s: (
            s.cadence.needs_norm and not s.cadence.keeps_last and not (s.memory and s.memory.measures_norm)
        ),
        "it cannot measure what there is to send. Take Direct, ErrorFeedback or LazyAggregation, or another "
        "cadence",
    ),
    Rule(
        ("cadence", "compress"),
        lambda s: s.cadence.outer and s.memory and (not s.memory.one_model or s.memory.autotuned),
        lambda s: (
            f"{s.cadence.outer!r} moves the one model that all ranks stand at, and with this memory they "
            "stand apart. Take Direct or ErrorFeedback, or no outer optimiser"
        ),
    ),
    Rule(
        ("cadence", "compress"),
        lambda s: s.cadence.overlapped and s.memory and not s.memory.overlaps,
        "with it ranks' models stand off a common point by what was not sent, and they have gone on when an "
        "exchange ends, so that this would count twice. Take Direct or ErrorFeedback, or delay=0 and "
        "fragments=1",
    ),
    # What only a hub can know.
    Rule(
        ("aggregate",),
        lambda s: s.rule.needs_trusted and s.hub is None,
        "judges by the loss on trusted samples, for which whole gradients and the whole model must be in one "
        "place: give collective=Hub(0)",
    ),
    Rule(
        ("aggregate", "updates after each contribution"),
        lambda s: not s.rule.one_by_one and _one_by_one(s),
        "it leaves out the worst of several. Give Hub(when=...), or take ZenoPlusPlus",
    ),
    Rule(
        ("aggregate", "exchange"),
        lambda s: s.exchange not in s.rule.exchanges,
        lambda s: s.rule.exchanges_reason,
    ),
    Rule(
        ("aggregate", "cadence"),
        lambda s: s.rule.measured_steps not in (None, _steps(s)),
        lambda s: (
            f"how far {s.rule.measured_steps} steps lead is no measure of {_steps(s)}. Take steps={_steps(s)}"
        ),
    ),
    Rule(
        ("aggregate",),
        lambda s: s.rule.needs_losses and s.hub is None,
        "weighs by losses, which only a hub learns, with what is offered to it: give collective=Hub(0)",
    ),
    Rule(
        ("aggregate", "privacy"),
        lambda s: s.rule.needs_losses and s.privacy is not None,
        "losses would leave workers without noise. Take Mean",
    ),
    # A hub's optimizer steps by each contribution, whenever it comes.
    Rule(
        ("collective", "exchange"),
        lambda s: s.privacy is not None and s.exchange == "model",
        "what is clipped must be short where little was learned, and a model is not. Exchange "
        '"difference" or "gradient"',
    ),
    Rule(
        ("aggregate", "collective"),
        lambda s: _adds_up(s) and s.aggregate.in_network is None,
        "it must see each contribution alone, and aggregators send sums. Take Mean(), or aggregators=0",
    ),
    Rule(
        ("transport", "collective"),
        lambda s: _adds_up(s) and s.transport is not None,
        "members that add up for others are reached by sealed TCP streams. Leave it out, or take "
        "aggregators=0",
    ),
    Rule(
        ("compress", "collective"),
        lambda s: _adds_up(s) and s.memory and s.memory.skips_unsent,
        "what was not sent counts for nothing, and in a sum it would be zero. Take aggregators=0, or "
        "ErrorFeedback",
    ),
    Rule(
        ("aggregate", "updates after each contribution"),
        lambda s: s.aggregate.compares and _one_by_one(s),
        "there is nothing to compare one with. Give Hub(when=...): a Cache or Quorum of three or more, "
        "or All",
    ),
    Rule(
        ("collective", "exchange"),
        lambda s: s.hub and s.exchange == "step",
        "the hub's own optimizer steps, on a model that others have moved meanwhile. Exchange "
        '"gradient", "difference" or "model"',
    ),
    Rule(
        ("cadence", "collective"),
        lambda s: s.hub and (s.cadence.may_be_silent or s.cadence.outer or s.cadence.overlapped),
        "workers reach a hub one by one, its optimizer is the outer one, and they need not wait for each "
        "other. Take EveryStep, or LocalSteps without outer, delay and fragments",
    ),
    Rule(
        ("compress", "collective"),
        lambda s: s.hub and s.memory and (not s.memory.one_by_one or _rests_on_means(s)),
        "it rests on what all ranks send in one exchange, and a hub hears them one by one. Take Direct, "
        "ErrorFeedback or LocalResidual",
    ),
    # A deferred step waits for the sum of its own bucket, and for nothing else.
    Rule(
        ("cadence", "collective"),
        lambda s: s.cadence.deferred and s.hub,
        "a worker takes the hub's model, and no step of its own that could wait. Take EveryStep()",
    ),
    Rule(
        ("cadence", "compress"),
        lambda s: s.cadence.deferred and s.memory,
        "that all values are finite must be known of the whole gradient before any of it is sent, and what "
        "an exchange changes for later ones stays only if a step has used it. Take EveryStep()",
    ),
    Rule(
        ("cadence", "transport"),
        lambda s: s.cadence.deferred and s.may_lose,
        "what is lost returns with the next contribution if a step has used the exchange, which no deferred "
        "step has by then. Take EveryStep(), or lose nothing: Ltp(lossless=True)",
    ),
    Rule(
        ("cadence", "aggregate"),
        lambda s: s.cadence.deferred and s.aggregate.in_network != "mean",
        "it judges whole contributions, for all of which a step would wait. Take EveryStep(), or Mean()",
    ),
    Rule(
        ("order",),
        lambda s: s.order is not None and s.hub is None and not s.orders_sums,
        "goes by a model's versions, so it needs a hub: give collective=Hub(0). Sums of gradients go by "
        "ByLayer(), Credit() or Prophet()",
    ),
    Rule(
        ("order", "cadence"),
        lambda s: s.orders_sums and s.hub is None and not s.cadence.deferred,
        "all gradients are waited for at once, so that none is urgent. Take Deferred()",
    ),
    # Where each contribution is judged by the owners of its ranges.
    Rule(
        ("cadence", "aggregate"),
        lambda s: s.hub is None and s.aggregate.in_network is None and s.cadence.may_be_silent,
        "a silent rank counts as zero, or with what it sent before, which makes a mean right and nothing "
        "else. Take another cadence, or Mean()",
    ),
    Rule(
        ("compress", "aggregate"),
        lambda s: (
            s.hub is None
            and s.aggregate.in_network is None
            and s.memory
            and (s.memory.sends_differences or _rests_on_means(s))
        ),
        _sent_before,
    ),
)
