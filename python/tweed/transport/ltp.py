"""LTP: contributions go over UDP, and a sum does not wait for the last packet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from tweed.errors import UsageError

#: Whom an average divides by: all ranks, or for each number those whose contribution to it arrived.
DivideBy = Literal["all", "delivered"]
#: How packets between hosts are sealed.
Cipher = Literal["auto", "aes-128-gcm", "chacha20-poly1305"]


@dataclass(frozen=True, slots=True)
class Ltp:
    """Loss-tolerant transport: a rank's own contribution to a sum may lose parts, all else arrives whole.

    Only floats and the values in packets of a codec lose parts, and only on the first hop: partial sums,
    results, copies, whole numbers, and a packet's indices and scales are sent again until they are there.
    What did not arrive counts as zero, and the sender learns which numbers that were. A message closes, by
    the time since its first packet:

        before its time without loss     when all of it is there
        then, up to the latest time      when `fraction` of it is there, and all that is critical
        at the latest time               with what is there; all that is critical is waited for still

    The time without loss is 1.5 round trips + size / bandwidth at first, then the shortest time in which that
    link brought all of it in the last epoch. The latest time is that of the slowest link, plus `slack_s`; the
    deadline of the run comes before both.

    Args:
      fraction: share of a message, above 0 and up to 1, that is enough once its time is over.
      slack_s: seconds, 0 or more, that the slowest link's time is exceeded by at most. 0.03 suits one
        building; between sites take about a round trip more.
      divide_by: for averages. "all": what is lost counts as zero, and comes with the next contribution if
        `return_lost`. "delivered": each number is the average of those that arrived, so that loss does not
        shrink it; returned besides, what was lost weighs more than the rest.
      return_lost: `tweed.attach` adds what did not arrive to the rank's next contribution.
      lossless: nothing may be missing. `fraction`, `divide_by` and `return_lost` then mean nothing.
      epoch_steps: the times above are set anew after so many steps, 1 or more.
      cipher: of packets between hosts; "auto" takes AES where the processor has instructions for it. Within
        a host, without a secret, packets are clear.

    Raises: UsageError for a value that cannot be.

    Cost: each value once, some 50 bytes of header and seal per packet, and what is sent again.
    Source: LTP, arXiv 2305.04279, 2023: out-of-order transmission, early close, bubble filling. Its fraction
      is 0.8; losing that much costs more steps, losing 3 % does not (MLT, NSDI 2024). That the sender takes
      back what was lost, `divide_by` and `lossless` are our own.
    """

    fraction: float = 0.98
    slack_s: float = 0.03
    divide_by: DivideBy = "all"
    return_lost: bool = True
    lossless: bool = False
    epoch_steps: int = 100
    cipher: Cipher = "auto"

    name: ClassVar[str] = "ltp"

    def __post_init__(self) -> None:
        if not (_is_number(self.fraction) and 0 < self.fraction <= 1):
            raise UsageError(f"ltp: fraction={self.fraction!r} is no share above 0 and up to 1, such as 0.98")
        if not (_is_number(self.slack_s) and 0 <= self.slack_s < math.inf):
            raise UsageError(f"ltp: slack_s={self.slack_s!r} is no number of seconds; give 0 or more")
        if not (type(self.epoch_steps) is int and self.epoch_steps >= 1):
            raise UsageError(f"ltp: epoch_steps={self.epoch_steps!r} is no number of steps; give 1 or more")
        _check_one_of("divide_by", self.divide_by, get_args(DivideBy))
        _check_one_of("cipher", self.cipher, get_args(Cipher))
        for name in ("return_lost", "lossless"):
            _check_one_of(name, getattr(self, name), (True, False))

    @property
    def may_lose(self) -> bool:
        """Whether parts of a contribution may be missing from a sum."""
        return not self.lossless


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_one_of(name: str, value: object, possible: tuple[object, ...]) -> None:
    if value not in possible:
        raise UsageError(f"ltp: {name}={value!r} is none of {', '.join(map(repr, possible))}")
