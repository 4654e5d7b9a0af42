"""A strategy: one part per stage of an update's way, and what is exchanged.

    gradient -> cadence -> compress -> order -> collective -> transport -> aggregate -> optimizer

A named strategy is one visible expression over parts. To make your own, write another:

    Strategy(exchange="difference", cadence=LocalSteps(every=8))
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from tweed.aggregate import Aggregate, Mean
from tweed.cadence import Cadence, EveryStep, LocalSteps
from tweed.compress import Compressor, Direct, Memory
from tweed.errors import StrategyError, UsageError
from tweed.transport import Ltp, Transport
from tweed.transport import named as named_transport
from tweed.transport.ltp import DivideBy

if TYPE_CHECKING:
    from tweed.collective.server import Server

#: What ranks exchange: gradients before the optimizer's step; the step that each optimizer took; how far each
#: model has moved since the last exchange; the models themselves.
Exchange = Literal["gradient", "step", "difference", "model"]

_EXCHANGES = get_args(Exchange)
_EVERY_STEP = EveryStep()
_MEAN = Mean()


@dataclass(frozen=True)
class Strategy:
    """How ranks keep one model. A frozen value; equal strategies are equal values.

    Args:
      exchange: "gradient", "step", "difference" (of models since the last exchange) or "model".
      cadence: when to talk. Default: every step.
      compress: in which form numbers go: a memory, such as `ErrorFeedback(TopK(0.01))`; or a compressor, with
        nothing made good of what it leaves out: `Direct`. None: as they are.
      order: which transfer goes first. None: first in, first out.
      collective: along which path; so far a `Server`. None: what the group picks from size, ranks and
        measured links.
      transport: on what, a value or its name, such as "ltp". None: shared memory within a host, TCP between
        hosts.
      aggregate: what the sum is and whom to believe. Default: the mean of all.

    Raises: StrategyError if two parts do not fit together; the text names both.
    """

    exchange: Exchange = "gradient"
    cadence: Cadence[Any] = _EVERY_STEP
    compress: Memory[Any] | Compressor[Any] | None = None
    order: object | None = None
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
        self._check_cadence()
        self._check_loss()
        if self.compress is not None:
            self._check_compress()

    def _check_cadence(self) -> None:
        if self.exchange not in self.cadence.exchanges:
            fits = " or ".join(f'"{kind}"' for kind in _EXCHANGES if kind in self.cadence.exchanges)
            raise StrategyError(
                f'cadence={self.cadence!r} does not go with exchange="{self.exchange}": '
                f"{self.cadence.reason}. Exchange {fits}, or take another cadence"
            )

    @property
    def memory(self) -> Memory[Any] | None:
        """What `compress` says, as a memory; None if numbers go as they are."""
        assert not isinstance(self.compress, Compressor)  # one was wrapped when the strategy was built
        return self.compress

    def _check_compress(self) -> None:
        if isinstance(self.compress, Compressor) and not isinstance(self.compress, type):
            object.__setattr__(self, "compress", Direct(self.compress))
        _check_part("compress", self.compress, Memory)
        assert isinstance(self.compress, Memory)
        if self.exchange not in self.compress.exchanges:
            fits = " or ".join(f'"{kind}"' for kind in _EXCHANGES if kind in self.compress.exchanges)
            raise StrategyError(
                f'compress={self.compress!r} does not go with exchange="{self.exchange}": '
                f"{self.compress.reason}. Exchange {fits}, or compress nothing"
            )
        if self.may_lose or self.collective is not None:
            other = self.collective if self.transport is None else self.transport
            raise StrategyError(
                f"compress={self.compress!r} does not go with {other!r}, which handles sums of plain numbers "
                "on their way, and what is compressed is no such sum. Leave one of the two out"
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


def _check_part(stage: str, part: object, contract: type) -> None:
    if isinstance(part, type) or not isinstance(part, contract):
        raise StrategyError(f"{stage}={part!r} is no part of that stage; take one from tweed.{stage}")


def every_step() -> Strategy:
    """Averages gradients every step: the numbers of torch's DistributedDataParallel.

    Cost: one all-reduce of the model's size per step, most of it during the backward pass.
    """
    return Strategy(exchange="gradient", cadence=EveryStep())


def local_steps(every: int = 8) -> Strategy:
    """Each rank takes `every` steps alone, then all average their models.

    Cost: one all-reduce of the model's size per `every` steps.
    Source: Stich, "Local SGD converges fast and communicates little", 2018.
    """
    return Strategy(exchange="model", cadence=LocalSteps(every))


def ltp(
    server: int | None = None,
    fraction: float = 0.98,
    slack_s: float = 0.03,
    divide_by: DivideBy = "all",
    return_lost: bool = True,
    lossless: bool = False,
) -> Strategy:
    """Averages gradients every step and does not wait for the last packet; what is lost comes a step later.

    Args:
      server: the rank that sums, and has no data; None: every rank sums its part of the gradient.
      fraction, slack_s, divide_by, return_lost, lossless: as in `tweed.transport.Ltp`.

    Cost: one all-reduce of the model's size per step; with a server `P - 1` models into its link, and out.
    Source: LTP, arXiv 2305.04279, 2023; see `tweed.systems.ltp`.
    """
    transport = Ltp(fraction, slack_s, divide_by, return_lost, lossless)
    return Strategy(collective=_server(server), transport=transport)


def _server(rank: int | None) -> Server | None:
    if rank is None:
        return None
    from tweed.collective.server import Server

    return Server(rank)


_NAMED: dict[str, Callable[..., Strategy]] = {make.__name__: make for make in (every_step, local_steps, ltp)}
_CALL = re.compile(r"(?P<name>\w+)\s*(?:\((?P<inside>.*)\)|:(?P<after>.*))?")


def named_strategies() -> list[str]:
    """The names that `named_strategy` knows, each with its settings, such as "local_steps(every=8)"."""
    return [f"{name}({_settings(make)})" for name, make in _NAMED.items()]


def named_strategy(text: str) -> Strategy:
    """The strategy that `text` names, for command lines and configuration files.

    Args:
      text: a name, with settings if wanted: "every_step", "local_steps", "local_steps:8", "local_steps(8)" or
        "local_steps(every=8)". Settings are literals, parted by commas.

    Raises: StrategyError for an unknown name or settings that do not fit it; the text lists what is known.
    """
    call = _CALL.fullmatch(text.strip())
    if call is None or call["name"] not in _NAMED:
        raise StrategyError(f"no strategy is named {text!r}. Known are: {', '.join(named_strategies())}")
    make = _NAMED[call["name"]]
    try:
        args, kwargs = _literals(call["inside"] or call["after"] or "")
        inspect.signature(make).bind(*args, **kwargs)
    except (TypeError, ValueError, SyntaxError) as error:
        raise StrategyError(f"{text!r}: {error}. Write {call['name']}({_settings(make)})") from error
    return _made(text, make, args, kwargs)


def _made(text: str, make: Callable[..., Strategy], args: list[Any], kwargs: dict[str, Any]) -> Strategy:
    try:
        return make(*args, **kwargs)
    except UsageError as error:
        raise StrategyError(f"{text!r}: {error}") from error


def _settings(make: Callable[..., Strategy]) -> str:
    settings = inspect.signature(make).parameters.values()
    return ", ".join(str(setting.replace(annotation=setting.empty)) for setting in settings)


def _literals(text: str) -> tuple[list[Any], dict[str, Any]]:
    call = ast.parse(f"_({text})", mode="eval").body
    if not isinstance(call, ast.Call):
        raise ValueError("settings are values parted by commas")
    args = [ast.literal_eval(arg) for arg in call.args]
    return args, {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
