"""The average of those that lie closest together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar

from tweed.aggregate.base import Reason
from tweed.aggregate.distance_based import BoundedDistanceBased, mean_of, squared_distances
from tweed.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

Pair = tuple[int, int]
#: Leaving out so many takes 2^12 looks in the worst case, some ten times.
_MOST = 12


@dataclass(frozen=True, slots=True)
class MDA(BoundedDistanceBased):
    """Averages the `n - f` contributions of which the two farthest apart are nearest to each other.

    Args:
      f: contributions that may be anything: a number, or a share of those that arrive, rounded down; less
        than half of them.

    Raises: UsageError for an `f` that cannot be; in `poll` and `attach` where too few contribute, or `f` is
      above 12.
    Cost: the exact subset in up to 2^f steps: those to leave out cover all pairs that are too far apart.
    Source: El Mhamdi et al., "Collaborative learning in the jungle", 2021 (minimum-diameter averaging).
    """

    reason: ClassVar[Reason] = Reason.NEAR_OTHERS

    def require(self, contributors: int) -> None:
        BoundedDistanceBased.require(self, contributors)
        if self.byzantine(contributors) > _MOST:
            raise UsageError(
                f"{self!r} of {contributors} contributions leaves out more than {_MOST}: finding the subset "
                "takes time that doubles with each. Take MultiKrum or CAF"
            )

    def weights(self, products: Tensor, byzantine: int) -> Tensor:
        """Equal ones for the subset; of several alike, for that whose members come first."""
        distances = squared_distances(products).tolist()
        members = range(len(distances))
        pairs = sorted(((distances[a][b], a, b) for a, b in combinations(members, 2)), reverse=True)
        low, high = 0, len(pairs)  # so many of the farthest can be covered; so many cannot
        while high - low > 1:
            middle = (low + high) // 2
            can = next(_covers([pair[1:] for pair in pairs[:middle]], byzantine), None) is not None
            low, high = (middle, high) if can else (low, middle)
        diameter = pairs[low][0] if pairs else 0.0
        covers = _covers([(a, b) for distance, a, b in pairs if distance > diameter], byzantine)
        return mean_of(min(_kept(cover, members, byzantine) for cover in covers), products)


def _covers(pairs: list[Pair], most: int) -> Iterator[frozenset[int]]:
    """Sets of at most `most` members that hold at least one member of each pair."""
    if not pairs:
        yield frozenset()
    elif most:
        for member in pairs[0]:
            left = [pair for pair in pairs if member not in pair]
            yield from (cover | {member} for cover in _covers(left, most - 1))


def _kept(cover: frozenset[int], members: range, byzantine: int) -> list[int]:
    """The members that are not in `cover`, without the last of them where it leaves out fewer than it may."""
    return [member for member in members if member not in cover][: len(members) - byzantine]
