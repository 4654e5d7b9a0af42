"""A strategy: one part per stage of an update's way, and what is exchanged.

    gradient -> cadence -> compress -> order -> collective -> transport -> aggregate -> optimizer

A named strategy (`tweed.recipes`) is one visible expression over parts. To make your own, write another:

    Strategy(exchange="difference", cadence=LocalSteps(every=8))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

from tweed.aggregate import Aggregate, ByLayers, Each, Mean, QFair, TrustedSamples, When
from tweed.aggregate.before import Before
from tweed.cadence import ByShards, Cadence, EveryStep, LocalSteps, Ordered
from tweed.compress import (
    Auto,
    ClippedNoise,
    Codec,
    Compressor,
    Direct,
    ErrorFeedback,
    LazyAggregation,
    LocalResidual,
    MeasuresNorm,
    Memory,
    Rounds,
    Spec,
)
from tweed.errors import StrategyError, UsageError
from tweed.order import Order
from tweed.transport import Transport
from tweed.transport import named as named_transport

if TYPE_CHECKING:
    from tweed.collective.hub import Hub
    from tweed.collective.server import Server

#: What ranks exchange: gradients before the optimizer's step; the same, of matrices as the factors whose
#: product they are, where that is less; the step that each optimizer took; how far each model has moved since
#: the last exchange; the models themselves.
Exchange = Literal["gradient", "factors", "step", "difference", "model"]

_EXCHANGES = get_args(Exchange)
_EVERY_STEP = EveryStep()
_MEAN = Mean()
_MATRIX = Spec(((1024, 1024),))
_NEARLY_EXACT = 1e-3  # of the squared length; rounding to 16 bits leaves less


#: Per part of a strategy: whether it does not go with factors, and why. A gradient is `G^T X` at each rank.
_NO_FACTORS: tuple[tuple[str, Callable[[Strategy], bool], str], ...] = (
    (
        "collective",
        lambda s: s.collective is not None,
        "it answers with one sum, and the sum of several ranks' products has no factors with few rows, so "
        'that the answer is a whole matrix. Leave it out, or exchange "gradient"',
    ),
    (
        "cadence",
        lambda s: not isinstance(s.cadence, EveryStep),
        "what a model has moved by in several steps, or what a silent rank has sent before, is no product of "
        "the factors of this step's gradient. Take EveryStep()",
    ),
    (
        "compress",
        lambda s: s.compress is not None,
        "a codec rounds or leaves out values of the gradient, and what that does to factors is multiplied "
        "with the other ones, so that no residual of values makes it good. Compress nothing, or exchange "
        '"gradient"',
    ),
    (
        "transport",
        lambda s: s.may_lose,
        "a value of a factor that is lost is missing in a whole row or column of the gradient, and returns "
        'as no value of the next one\'s factors. Lose nothing, Ltp(lossless=True), or exchange "gradient"',
    ),
    (
        "aggregate",
        lambda s: s.aggregate.in_network != "mean",
        "only of a mean are all ranks' factors, one below the other, the factors. Another rule compares "
        "whole gradients, for which each rank's would be multiplied out. Take Mean(), or exchange "
        '"gradient"',
    ),
)


@dataclass(frozen=True)
class Strategy:
    """How ranks keep one model. A frozen value; equal strategies are equal values.

    Args:
      exchange: "gradient", "factors" (gradients too, see `recipes.factors`), "step", "difference" (of models
        since the last exchange) or "model".
      cadence: when to talk. Default: every step.
      compress: in which form values are sent: a memory, such as `ErrorFeedback(TopK(0.01))`; or a compressor
        that needs none, being unbiased or nearly exact, which then means `Direct`; or "auto": see
        `compress.Auto`. None: as they are.
      order: which transfer goes first, at a hub. None: all at once.
      collective: along which path: a `Server`, or a `Hub` that workers reach when they like. None: what the
        group picks from size, ranks and measured links.
      transport: on what, a value or its name, such as "ltp". None: shared memory within a host, TCP between
        hosts.
      aggregate: what the sum is and whom to believe. Default: the mean of all.

    Raises: StrategyError if two parts do not fit together; the text names both.
    """

    exchange: Exchange = "gradient"
    cadence: Cadence[Any] = _EVERY_STEP
    compress: Memory[Any] | Codec | Literal["auto"] | None = None
    order: Order[Any] | None = None
    collective: Server | None = None
    transport: Transport | str | None = None
    aggregate: Aggregate[Any] = _MEAN

    def __post_init__(self) -> None:
        if self.exchange not in _EXCHANGES:
            raise StrategyError(f"exchange={self.exchange!r} is none of {', '.join(_EXCHANGES)}")
        _check_part("cadence", self.cadence, Cadence)
        _check_part("aggregate", self.aggregate, Aggregate)
        self._check_collective()
        if isinstance(self.transport, str):
            object.__setattr__(self, "transport", _transport(self.transport))
        if self.transport is not None:
            _check_part("transport", self.transport, Transport)
        if self.exchange == "factors":
            self._check_factors()
        self._check_cadence()
        self._check_loss()
        if self.compress is not None:
            self._check_compress()
        if isinstance(self.cadence, ByShards):
            self._check_by_shards(self.cadence)
        if isinstance(self.cadence, Ordered):
            self._check_ordered()
        else:
            self._check_silence()
        self._check_outer()
        self._check_trusted()
        self._check_losses()
        if self.hub is not None:
            self._check_hub(self.hub)
        elif self.order is not None:
            raise StrategyError(
                f"order={self.order!r} needs a hub, which transfers are offered to: give collective=Hub(0)"
            )
        elif self.aggregate.in_network is None:
            self._check_aggregate()

    def __repr__(self) -> str:
        """Without what is as it is by default."""
        stages = {stage.name: (getattr(self, stage.name), stage.default) for stage in fields(self)}
        own = [f"{name}={value!r}" for name, (value, default) in stages.items() if value != default]
        return f"Strategy({', '.join(own)})"

    @property
    def trusts_samples(self) -> bool:
        """Whether its aggregate judges by samples that the hub trusts."""
        return isinstance(self.rule, TrustedSamples)

    @property
    def rule(self) -> Aggregate[Any]:
        """What judges, behind all that comes before."""
        rule = self.aggregate
        while isinstance(rule, Before):
            rule = rule.then
        return rule

    def _check_trusted(self) -> None:
        rule = self.rule
        if not isinstance(rule, TrustedSamples):
            return
        if self.hub is None:
            raise StrategyError(
                f"aggregate={self.aggregate!r} judges by the loss on trusted samples, for which whole "
                "gradients and the whole model must be in one place: give collective=Hub(0)"
            )
        if not rule.one_by_one and (self.hub.when is None or isinstance(self.hub.when, Each)):
            raise StrategyError(
                f"aggregate={self.aggregate!r} does not go with updates after each contribution: it leaves "
                "out the worst of several. Give Hub(when=...), or take ZenoPlusPlus"
            )
        if self.exchange not in rule.exchanges:
            raise StrategyError(
                f'aggregate={self.aggregate!r} does not go with exchange="{self.exchange}": {rule.reason}'
            )
        steps = self.cadence.every if isinstance(self.cadence, LocalSteps) else 1
        if isinstance(rule, ByLayers) and rule.steps != steps:
            raise StrategyError(
                f"aggregate={self.aggregate!r} does not go with cadence={self.cadence!r}: how far "
                f"{rule.steps} steps lead is no measure of {steps}. Take steps={steps}"
            )

    def _check_factors(self) -> None:
        for part, refuses, why in _NO_FACTORS:
            if refuses(self):
                raise StrategyError(
                    f'{part}={getattr(self, part)!r} does not go with exchange="factors": {why}'
                )

    @property
    def exchanges_gradients(self) -> bool:
        """Whether gradients are averaged before the optimizer's step, in whatever form they go."""
        return self.exchange in ("gradient", "factors")

    @property
    def hub(self) -> Hub | None:
        """The hub that workers reach when they like; None: there is none."""
        if self.collective is None:
            return None
        from tweed.collective.hub import Hub  # loads the extension module

        return self.collective if isinstance(self.collective, Hub) else None

    def _check_hub(self, hub: Hub) -> None:
        """A hub's optimizer steps by each contribution, whenever it comes."""
        if hub.when is not None:
            _check_part("when", hub.when, When)
        if hub.model is not None and (isinstance(hub.model, type) or not isinstance(hub.model, Compressor)):
            raise StrategyError(
                f"collective={hub!r}: model={hub.model!r} is no codec with packets of their own, which each "
                "worker can read by itself; give Quantise(8)"
            )
        self._check_privacy(hub)
        if self.order is not None:
            _check_part("order", self.order, Order)
        if hub.aggregators and self.aggregate.in_network is None:
            raise StrategyError(
                f"aggregate={self.aggregate!r} does not go with collective={hub!r}: it must see each "
                "contribution alone, and aggregators send sums. Take Mean(), or aggregators=0"
            )
        if hub.aggregators and self.transport is not None:
            raise StrategyError(
                f"transport={self.transport!r} does not go with collective={hub!r}: members that add up for "
                "others are reached by sealed TCP streams. Leave it out, or take aggregators=0"
            )
        if hub.aggregators and isinstance(self.memory, LocalResidual):
            raise StrategyError(
                f"{self.memory!r} does not go with collective={hub!r}: what was not sent counts for nothing, "
                "and in a sum it would be zero. Take aggregators=0, or ErrorFeedback"
            )
        if self.aggregate.compares and (hub.when is None or isinstance(hub.when, Each)):
            raise StrategyError(
                f"aggregate={self.aggregate!r} does not go with updates after each contribution: there is "
                "nothing to compare one with. Give Hub(when=...): a Cache or Quorum of three or more, or All"
            )
        if self.exchange == "step":
            raise StrategyError(
                f'collective={hub!r} does not go with exchange="step": the hub\'s own optimizer steps, on a '
                'model that others have moved meanwhile. Exchange "gradient", "difference" or "model"'
            )
        if self.cadence.may_be_silent or isinstance(self.cadence, Ordered) or self.cadence.outer is not None:
            raise StrategyError(
                f"cadence={self.cadence!r} does not go with collective={hub!r}: workers reach a hub one by "
                "one, and its optimizer is the outer one. Take EveryStep, or LocalSteps without an outer one"
            )
        memory = self.memory
        rounds = [part for part in memory.parts.values() if isinstance(part, Rounds)] if memory else []
        if not isinstance(memory, Direct | ErrorFeedback | LocalResidual | None) or rounds:
            raise StrategyError(
                f"compress={memory!r} does not go with collective={hub!r}: it rests on what all ranks send "
                "in one exchange, and a hub hears them one by one. Take Direct, ErrorFeedback or "
                "LocalResidual"
            )

    def _check_losses(self) -> None:
        if not isinstance(self.rule, QFair):
            return
        if self.hub is None:
            raise StrategyError(
                f"aggregate={self.aggregate!r} weighs by losses, which only a hub learns, with what is "
                "offered to it: give collective=Hub(0)"
            )
        if self.hub.privacy is not None:
            raise StrategyError(
                f"aggregate={self.aggregate!r} does not go with privacy={self.hub.privacy!r}: losses would "
                "leave workers without noise. Take Mean"
            )

    def _check_privacy(self, hub: Hub) -> None:
        if hub.privacy is None:
            return
        if not isinstance(hub.privacy, ClippedNoise):
            raise StrategyError(
                f"collective={hub!r}: privacy={hub.privacy!r} hides nothing; give ClippedNoise(1.0)"
            )
        if self.exchange == "model":
            raise StrategyError(
                f'collective={hub!r} does not go with exchange="model": what is clipped must be short where '
                'little was learned, and a model is not. Exchange "difference" or "gradient"'
            )

    def _check_cadence(self) -> None:
        if self.exchange not in self.cadence.exchanges:
            fits = " or ".join(f'"{kind}"' for kind in _EXCHANGES if kind in self.cadence.exchanges)
            raise StrategyError(
                f'cadence={self.cadence!r} does not go with exchange="{self.exchange}": '
                f"{self.cadence.reason}. Exchange {fits}, or take another cadence"
            )

    def _check_ordered(self) -> None:
        if self.collective is None:
            raise StrategyError(
                f"cadence={self.cadence!r} needs a server that hears ranks one by one: give "
                "collective=Server(0)"
            )
        memory = self.memory
        if not isinstance(memory, LazyAggregation | None):
            raise StrategyError(
                f"cadence={self.cadence!r} does not go with compress={memory!r}: a rank counts with all that "
                "it has sent, and what a packet leaves out is in the next difference. Take LazyAggregation"
            )
        if memory is not None and isinstance(memory.compressor, Rounds):
            raise StrategyError(
                f"cadence={self.cadence!r} does not go with compress={memory!r}: its factors rest on means "
                "over all ranks, and the server hears them one by one. Take another compressor"
            )

    def _check_by_shards(self, cadence: ByShards) -> None:
        """What comes first of a shard counts, and the rest is thrown away."""
        if self.collective is None or self.hub is not None:
            raise StrategyError(
                f"cadence={cadence!r} does not go with collective={self.collective!r}: shards add up at one "
                "place and at one model, for which all workers begin a step with it. Give "
                "collective=Server(0)"
            )
        if self.aggregate.in_network != "mean":
            raise StrategyError(
                f"cadence={cadence!r} does not go with aggregate={self.aggregate!r}: of a shard the worker "
                "counts that is first, so that a hostile one would count as many; and a combination of "
                "shards cannot be judged by one of them. Take Mean()"
            )
        memory = self.memory
        rounds = memory is not None and any(isinstance(part, Rounds) for part in memory.parts.values())
        if not isinstance(memory, Direct | None) or rounds:
            raise StrategyError(
                f"cadence={cadence!r} does not go with compress={memory!r}: what a packet leaves out of a "
                "shard is in the one of another worker that counts instead. Take Direct, or compress nothing"
            )
        if memory is not None and (cadence.code != "uncoded" or memory.weight != 1):
            raise StrategyError(
                f"cadence={cadence!r} does not go with compress={memory!r}: weights of a code, which may be "
                'thousands, multiply what a packet is off. Take code="uncoded", or compress nothing'
            )

    def _check_silence(self) -> None:
        """A silent rank's part in an exchange is up to the memory; a plain sum has none for it."""
        if self.cadence.may_be_silent and self.compress is None:
            raise StrategyError(
                f"cadence={self.cadence!r} does not go with compress=None: what a silent rank counts "
                "for is undefined. Give a memory, such as LazyAggregation(Identity(by_ranges=True))"
            )
        if self.cadence.needs_norm and not isinstance(self.compress, MeasuresNorm):
            raise StrategyError(
                f"cadence={self.cadence!r} does not go with compress={self.compress!r}, which cannot "
                "measure what there is to send. Take Direct, ErrorFeedback or LazyAggregation, or another "
                "cadence"
            )

    def _check_outer(self) -> None:
        outer = self.cadence.outer
        if outer is not None and not isinstance(self.compress, Direct | ErrorFeedback | None):
            raise StrategyError(
                f"cadence={self.cadence!r} does not go with compress={self.compress!r}: {outer!r} moves "
                "the one model that all ranks stand at, and with this memory they stand apart. Take Direct "
                "or ErrorFeedback, or no outer optimiser"
            )

    def _check_aggregate(self) -> None:
        """Refuses what cannot be seen contribution by contribution."""
        if self.cadence.may_be_silent:
            raise StrategyError(
                f"cadence={self.cadence!r} does not go with aggregate={self.aggregate!r}: a silent rank "
                "counts as zero, or with what it sent before, which makes a mean right and nothing else. "
                "Take another cadence, or Mean()"
            )
        memory = self.memory
        differences = isinstance(memory, LazyAggregation)
        rounds = [part for part in memory.parts.values() if isinstance(part, Rounds)] if memory else []
        if differences or rounds:
            what = "differences from what was sent before" if differences else f"factors of {rounds[0]!r}"
            raise StrategyError(
                f"compress={memory!r} does not go with aggregate={self.aggregate!r}: ranks send {what}, of "
                "which only a mean is the mean of what they stand for. Take another compressor, or Mean()"
            )

    @property
    def memory(self) -> Memory[Any] | None:
        """What `compress` is, as a memory; None if values go as they are."""
        assert not isinstance(self.compress, Codec | str)  # made a memory when the strategy was built
        return self.compress

    @property
    def is_plain_sum(self) -> bool:
        """Contributions are added up as they are, and the sum is what everybody applies."""
        return self.compress is None and self.cadence.outer is None and self.aggregate.in_network == "mean"

    def _check_compress(self) -> None:
        if self.compress == "auto":
            object.__setattr__(self, "compress", Auto())
        if isinstance(self.compress, Codec) and not isinstance(self.compress, type):
            object.__setattr__(self, "compress", _direct(self.compress))
        _check_part("compress", self.compress, Memory)
        assert isinstance(self.compress, Memory)
        if self.exchange not in self.compress.exchanges:
            fits = " or ".join(f'"{kind}"' for kind in _EXCHANGES if kind in self.compress.exchanges)
            raise StrategyError(
                f'compress={self.compress!r} does not go with exchange="{self.exchange}": '
                f"{self.compress.reason}. Exchange {fits}, or compress nothing"
            )

    def _check_collective(self) -> None:
        if self.collective is not None:
            from tweed.collective.server import Server  # loads the extension module

            _check_part("collective", self.collective, Server)

    @property
    def may_lose(self) -> bool:
        """Whether parts of a contribution may be missing from a sum."""
        return isinstance(self.transport, Transport) and self.transport.may_lose

    def _check_loss(self) -> None:
        if self.may_lose and self.exchange == "model":
            raise StrategyError(
                f'transport={self.transport!r} does not go with exchange="model": it may lose parts of what '
                'ranks contribute, and a model must not lose parameters. Exchange "gradient", "step" or '
                '"difference", or lose nothing: Ltp(lossless=True)'
            )


def _transport(name: str) -> Transport:
    try:
        return named_transport(name)
    except UsageError as error:
        raise StrategyError(f"transport={name!r}: {error}") from error


def _direct(codec: Codec) -> Direct:
    if not codec.unbiased and codec.error_bound(_MATRIX) > _NEARLY_EXACT:
        raise StrategyError(
            f"compress={codec!r} is biased, and nothing makes good what it leaves out: give "
            f"ErrorFeedback({codec!r}), or, if it may be lost, Direct({codec!r})"
        )
    return Direct(codec)


def _check_part(stage: str, part: object, contract: type) -> None:
    if isinstance(part, type) or not isinstance(part, contract):
        raise StrategyError(f"{stage}={part!r} is no part of that stage; take one from tweed.{stage}")
