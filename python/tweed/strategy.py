"""A strategy: one part per stage of an update's way, and what is exchanged.

    gradient -> cadence -> compress -> order -> collective -> transport -> aggregate -> optimizer

A named strategy (`tweed.recipes`) is one visible expression over parts. To make your own, write another:

    Strategy(exchange="difference", cadence=LocalSteps(every=8))
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, cast

from tweed import composition
from tweed.aggregate import Aggregate, CommitRule, Mean
from tweed.cadence import Cadence, EveryStep
from tweed.composition import Exchange as Exchange
from tweed.compress import Auto, ClippedNoise, Codec, Compressor, Direct, Memory, Spec
from tweed.errors import StrategyError, UsageError
from tweed.order import GradientOrder, Order
from tweed.transport import Transport
from tweed.transport import named as named_transport

if TYPE_CHECKING:
    from tweed.collective.hub import Hub
    from tweed.collective.server import Server

_EVERY_STEP = EveryStep()
_MEAN = Mean()
_MATRIX = Spec(((1024, 1024),))
_NEARLY_EXACT = 1e-3  # of the squared length; rounding to 16 bits leaves less


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
      order: which transfer goes first, at a hub; or of gradients, under `Deferred`. None: all at once.
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
        if self.exchange not in composition.EXCHANGES:
            raise StrategyError(f"exchange={self.exchange!r} is none of {', '.join(composition.EXCHANGES)}")
        if isinstance(self.transport, str):
            object.__setattr__(self, "transport", _transport(self.transport))
        self._check_parts()
        composition.check(self, composition.OF_EXCHANGES)
        if self.compress is not None:
            object.__setattr__(self, "compress", _memory(self.compress))
        composition.check(self, composition.OF_PARTS)

    def __repr__(self) -> str:
        """Without what is as it is by default."""
        stages = {stage.name: (getattr(self, stage.name), stage.default) for stage in fields(self)}
        own = [f"{name}={value!r}" for name, (value, default) in stages.items() if value != default]
        return f"Strategy({', '.join(own)})"

    @property
    def rule(self) -> Aggregate[Any]:
        """What judges, behind all that comes before."""
        return self.aggregate.judge

    @property
    def trusts_samples(self) -> bool:
        """Whether its aggregate judges by samples that the hub trusts."""
        return self.rule.needs_trusted

    @property
    def exchanges_gradients(self) -> bool:
        """Whether gradients are averaged before the optimizer's step, in whatever form they go."""
        return self.exchange in ("gradient", "factors")

    @property
    def hub(self) -> Hub | None:
        """The hub that workers reach when they like; None: there is none."""
        return None if self.collective is None else self.collective.hub

    @property
    def privacy(self) -> ClippedNoise | None:
        """What hides what a worker sends to a hub; None: values go as they are."""
        return None if self.hub is None else self.hub.privacy

    @property
    def memory(self) -> Memory[Any] | None:
        """What `compress` is, as a memory; None if values go as they are."""
        assert not isinstance(self.compress, Codec | str)  # made a memory when the strategy was built
        return self.compress

    @property
    def orders_sums(self) -> bool:
        """Whether its order is one that sums of gradients can follow."""
        return isinstance(self.order, GradientOrder)

    @property
    def may_lose(self) -> bool:
        """Whether parts of a contribution may be missing from a sum."""
        return isinstance(self.transport, Transport) and self.transport.may_lose

    @property
    def is_plain_sum(self) -> bool:
        """Contributions are added up as they are, and the sum is what everybody applies."""
        return self.compress is None and self.cadence.outer is None and self.aggregate.in_network == "mean"

    def _check_parts(self) -> None:
        """Raises StrategyError for what is no part of its stage."""
        _check_part("cadence", self.cadence, Cadence)
        _check_part("aggregate", self.aggregate, Aggregate)
        if self.collective is not None:
            from tweed.collective.server import Server  # loads the extension module

            _check_part("collective", self.collective, Server)
        if self.transport is not None:
            _check_part("transport", self.transport, Transport)
        if self.order is not None:
            _check_part("order", self.order, Order)
        if (hub := self.hub) is None:
            return
        if hub.when is not None:
            trouble = "does not say when a hub commits; take Each, Cache, Quorum or All from tweed.aggregate"
            _check_part(f"collective={hub!r}: when", hub.when, CommitRule, trouble)
        if hub.model is not None:
            trouble = "is no codec with packets of their own, which each worker can read by itself; give"
            _check_part(f"collective={hub!r}: model", hub.model, Compressor, f"{trouble} Quantise(8)")
        if hub.privacy is not None:
            trouble = "hides nothing; give ClippedNoise(1.0)"
            _check_part(f"collective={hub!r}: privacy", hub.privacy, ClippedNoise, trouble)


def _transport(name: str) -> Transport:
    try:
        return named_transport(name)
    except UsageError as error:
        raise StrategyError(f"transport={name!r}: {error}") from error


def _memory(compress: Any) -> Memory[Any]:
    """What was given for `compress`, as a memory."""
    if compress == "auto":
        return Auto()
    if isinstance(compress, type) or not isinstance(compress, Codec):
        _check_part("compress", compress, Memory)
        return cast(Memory[Any], compress)
    if not compress.unbiased and compress.error_bound(_MATRIX) > _NEARLY_EXACT:
        raise StrategyError(
            f"compress={compress!r} is biased, and nothing makes good what it leaves out: give "
            f"ErrorFeedback({compress!r}), or, if it may be lost, Direct({compress!r})"
        )
    return Direct(compress)


def _check_part(stage: str, part: object, contract: type, trouble: str = "") -> None:
    if isinstance(part, type) or not isinstance(part, contract):
        raise StrategyError(
            f"{stage}={part!r} " + (trouble or f"is no part of that stage; take one from tweed.{stage}")
        )
