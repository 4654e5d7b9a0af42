"""Rates, sizes, times and probabilities of a network as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from tweed.errors import UsageError

RATES = {"gbit": Decimal(10**9), "mbit": Decimal(10**6), "kbit": Decimal(10**3), "bit": Decimal(1)}
SIZES = {"mb": Decimal(10**6), "kb": Decimal(10**3), "b": Decimal(1)}
TIMES = {"ms": Decimal(1), "us": Decimal("0.001"), "s": Decimal(10**3)}
_EXAMPLE = "rate=100mbit,loss=0.1%,congestion=cubic"


def unreadable(part: str, why: str) -> UsageError:
    """The error for a part of a network's text that means nothing."""
    return UsageError(f"cannot read {part.strip()!r} of a network: {why}; for example {_EXAMPLE}")


def read(text: str, units: Mapping[str, Decimal], key: str, example: str) -> float:
    """A number with one of `units`, in the unit that counts 1."""
    number = text.lower().removesuffix("/s")
    for unit, size in units.items():
        if number.endswith(unit):
            return float(number_in(number.removesuffix(unit), text, f"{key}={example}") * size)
    raise unreadable(f"{key}={text}", f"a {key} has a unit, {', '.join(units)}")


def chance(text: str, key: str) -> float:
    """A probability, "0.1%" or "0.001"."""
    number = number_in(text.removesuffix("%"), text, f"{key}=0.1%")
    return float(number / 100 if text.endswith("%") else number)


def number_in(text: str, whole: str, example: str) -> Decimal:
    """The number `text`, which stands in `whole`."""
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite():
        raise UsageError(f"cannot read the number in {whole!r} of a network; write it like {example}")
    return number


def rate(bits: float) -> str:
    """A rate in short, such as "100mbit"."""
    return _in_units(bits, RATES)


def spoken_rate(bits: float) -> str:
    """A rate in words, such as "100 Mbit/s"."""
    number = rate(bits).rstrip("kmgbit")
    return f"{number} {rate(bits).removeprefix(number).capitalize()}/s"


def size(numbytes: int) -> str:
    """A size in short, such as "64kb"."""
    return _in_units(numbytes, SIZES)


def spoken_size(numbytes: int) -> str:
    """A size in words, such as "64 KB"."""
    number = size(numbytes).rstrip("mkb")
    return f"{number} {size(numbytes).removeprefix(number).upper()}"


def percent(probability: float) -> str:
    """A probability in percent: "0.1" for 0.001."""
    return plain(Decimal(round(probability * 10**6)) / 10**4)


def plain(number: Decimal | float) -> str:
    """A number with no more digits than it needs."""
    return f"{Decimal(str(number)).normalize():f}"


def _in_units(number: float, units: Mapping[str, Decimal]) -> str:
    unit = next(unit for unit, size in units.items() if number >= size)
    return f"{plain(Decimal(str(number)) / units[unit])}{unit}"
