"""How many bytes of a message go out before its receiver knows how long the message is.

A receiver needs the size of what comes. Where ranks tell each other all sizes first, that takes a latency of
its own. But both ends of a pair know how long their last messages of the same kind were. From these both
derive the *eager bytes* of the next one: so many are sent at once, with the true length in front. What is
longer follows as a second message, and what is shorter is padded.

    lengths are alike       as many as the longest of the last messages had: nearly always all of it fits
    lengths jump            as many as the shortest had: 0 where a rank is silent now and then
    at the beginning        0

Pure: no group. `tweed.exchange.collectives` sends.
Source: the eager and the rendezvous protocol of MPI's implementations, with a limit that follows the lengths.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Sequence

#: A limit rests on so many lengths.
_KEPT = 8
#: Lengths are alike that differ by at most this share of the shortest, and so many bytes more.
_SHARE, _BYTES = 1 / 4, 64


def eager_bytes(lengths: Sequence[int]) -> int:
    """How many bytes of the next message go at once, where the last ones had these `lengths`.

    Example:
      >>> eager_bytes([1000, 1040, 1020]), eager_bytes([1000, 0, 1000]), eager_bytes([1000])
      (1040, 0, 0)
    """
    if len(lengths) < 2:
        return 0
    low, high = min(lengths), max(lengths)
    return high if high - low <= _SHARE * low + _BYTES else low


class EagerLimits:
    """What one rank knows of the lengths of messages of one kind, from and to each rank.

    Both ends of a pair have the same limit, as long as both note every message.

    Args:
      size: of the group.
      tag: of messages that follow from rank to rank.
    """

    def __init__(self, size: int, tag: int = 0) -> None:
        self.tag = tag
        self._sent: list[deque[int]] = [deque(maxlen=_KEPT) for _ in range(size)]
        self._received: list[deque[int]] = [deque(maxlen=_KEPT) for _ in range(size)]

    def sent(self) -> list[int]:
        """Eager bytes of the next message to each rank."""
        return [eager_bytes(lengths) for lengths in self._sent]

    def received(self) -> list[int]:
        """Eager bytes of the next message from each rank."""
        return [eager_bytes(lengths) for lengths in self._received]

    def note(self, sent: Sequence[int], received: Sequence[int]) -> None:
        """Messages have crossed: their whole lengths in bytes, by rank."""
        for kept, length in zip([*self._sent, *self._received], [*sent, *received], strict=True):
            kept.append(length)


#: By kind of message: those of one kind have the same place in every exchange.
LimitsByKind = defaultdict[Hashable, EagerLimits]


def limits_by_kind(size: int, tag: int) -> LimitsByKind:
    """Limits of all kinds of messages that the same exchanges send again and again.

    They last as long as ranks take part in these exchanges, in one group. A checkpoint that is loaded changes
    nothing of them: if one rank alone loads one, both ends still agree.

    Args:
      size: of the group.
      tag: of messages that follow from rank to rank.
    """
    return defaultdict(lambda: EagerLimits(size, tag))
