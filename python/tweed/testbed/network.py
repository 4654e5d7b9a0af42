"""What a testbed's network is like, as a value. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from tweed.errors import UsageError

_UNITS = {"gbit": 10**9, "mbit": 10**6, "kbit": 10**3, "bit": 1}
_PPM = 10**6  # the finest loss that is told from none
_EXAMPLE = "rate=100mbit,loss=0.1%,congestion=cubic"


@dataclass(frozen=True, slots=True)
class Network:
    """Equal links from every worker to one hub.

    Attributes:
      rate_bits: bits per second of each link, in each direction, Ethernet headers included; None: as fast as
        the machine can.
      loss: probability that a packet is lost on its way from one worker to another, at the hub. It strikes
        each IP packet once, data and acknowledgements alike, independently; whole parts per million.
      congestion: the kernel's congestion control of all TCP connections over the links.

    Raises: UsageError for a value that makes no sense.
    """

    rate_bits: float | None = None
    loss: float = 0.0
    congestion: str = "cubic"

    def __post_init__(self) -> None:
        if self.rate_bits is not None and not 10**4 <= self.rate_bits <= 10**11:
            raise UsageError(f"a rate of {self.rate_bits:g} bit/s is not between 10kbit and 100gbit")
        if not 0 <= self.loss < 1:
            raise UsageError(f"a loss of {self.loss:g} is not at least 0 and below 1 (write 0.1% or 0.001)")
        if self.loss and self.loss * _PPM < 0.5:
            raise UsageError(f"a loss of {self.loss:g} is too small: the least is one packet in a million")
        if not self.congestion.replace("_", "").isalnum():
            raise UsageError(f"{self.congestion!r} is no name of a congestion control, such as cubic or bbr")
        if self.rate_bits is not None:
            object.__setattr__(self, "rate_bits", round(self.rate_bits))
        object.__setattr__(self, "loss", self.loss_ppm / _PPM)

    @property
    def loss_ppm(self) -> int:
        """Packets lost of a million."""
        return round(self.loss * _PPM)

    @classmethod
    def parse(cls, text: str) -> Network:
        """Reads "rate=100mbit,loss=0.1%,congestion=bbr"; what is left away is as in `Network()`.

        Raises: UsageError; says what is wrong and how it should look.
        """
        values: dict[str, float | str] = {}
        for part in text.split(","):
            key, sign, value = (word.strip() for word in part.partition("="))
            if not sign or not value or key not in _KEYS:
                raise UsageError(_unreadable(part, f"the keys are {', '.join(_KEYS)}"))
            if key in values:
                raise UsageError(_unreadable(part, f"{key} is there twice"))
            values[key] = _KEYS[key](value)
        rate, loss = values.get("rate"), values.get("loss", 0.0)
        return cls(None if rate is None else float(rate), float(loss), str(values.get("congestion", "cubic")))

    def __str__(self) -> str:
        """In the form that `parse` reads, with everything said."""
        rate = [] if self.rate_bits is None else [f"rate={_in_units(int(self.rate_bits))}"]
        loss = [f"loss={_plain(Decimal(self.loss_ppm) / 10**4)}%"] if self.loss_ppm else []
        return ",".join([*rate, *loss, f"congestion={self.congestion}"])

    @property
    def words(self) -> str:
        """For people: "100 Mbit/s per worker, 0.1 % of packets lost, cubic"."""
        rate = "not slowed" if self.rate_bits is None else f"{_spoken(int(self.rate_bits))} per worker"
        loss = f"{_plain(Decimal(self.loss_ppm) / 10**4)} % of packets lost" if self.loss else "no loss"
        return f"{rate}, {loss}, {self.congestion}"


def _unreadable(part: str, why: str) -> str:
    return f"cannot read {part.strip()!r} of a network: {why}; for example {_EXAMPLE}"


def _rate(text: str) -> float:
    number = text.lower().removesuffix("/s")
    for unit, bits in _UNITS.items():
        if number.endswith(unit):
            return float(_number(number.removesuffix(unit), text, "rate=100mbit") * bits)
    raise UsageError(_unreadable(f"rate={text}", f"a rate has a unit, {', '.join(_UNITS)}"))


def _loss(text: str) -> float:
    number = _number(text.removesuffix("%"), text, "loss=0.1%")
    return float(number / 100 if text.endswith("%") else number)


def _number(text: str, whole: str, example: str) -> Decimal:
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite():
        raise UsageError(f"cannot read the number in {whole!r} of a network; write it like {example}")
    return number


_KEYS: dict[str, Callable[[str], float | str]] = {"rate": _rate, "loss": _loss, "congestion": str}


def _in_units(bits: int) -> str:
    unit = next(unit for unit, size in _UNITS.items() if bits >= size)
    return f"{_plain(Decimal(bits) / _UNITS[unit])}{unit}"


def _spoken(bits: int) -> str:
    number = _in_units(bits).rstrip("kmgbit")
    return f"{number} {_in_units(bits).removeprefix(number).capitalize()}/s"


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"
