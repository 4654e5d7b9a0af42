"""Contributions become averages of random groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tweed.aggregate.base import Aggregate
from tweed.aggregate.fools_gold import FoolsGold
from tweed.aggregate.monna import MoNNA
from tweed.aggregate.preprocess import Preprocess, check_inner
from tweed.aggregate.weighted import Averaged
from tweed.aggregate.zeno_plus_plus import ZenoPlusPlus
from tweed.errors import UsageError
from tweed.rng import uniform

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Bucketing(Preprocess):
    """Averages groups of `size` contributions, drawn anew for each batch; the rule sees one per group.

    Where honest workers have different data, averages of them are more alike. A hostile contribution spoils
    its group: an `f` of `then` counts groups.

    Args:
      then: the rule that sees the averages.
      size: of a group; the last one may be smaller.
      seed: of the draws.

    Raises: UsageError for arguments that cannot be; in `poll` and `attach` where there are too few groups.
    Source: Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", 2022,
      algorithm 1.
    """

    then: Aggregate[Any]
    size: int = 2
    seed: int = 0
    one_each: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_inner(self, self.then)
        if self.size < 1:
            raise UsageError(f"{self!r}: a group has at least one contribution")
        rule = self.then
        while isinstance(rule, Preprocess):
            rule = rule.then
        record = isinstance(rule, ZenoPlusPlus) and rule.record > 0
        if record or isinstance(rule, MoNNA | FoolsGold | Averaged):
            raise UsageError(f"{self!r}: {self.then!r} goes by senders, and a group has no single sender")

    def sums(self, contributors: int) -> int:
        return -(-contributors // self.size)

    def shares(self, products: Tensor, batch: int) -> Tensor:
        """Each row equal shares of a group."""
        count = len(products)
        drawn = sorted(range(count), key=lambda at: uniform(self.seed, batch, at))
        groups = [drawn[first : first + self.size] for first in range(0, count, self.size)]
        found = products.new_zeros(len(groups), count)
        for at, group in enumerate(groups):
            found[at, group] = 1 / len(group)
        return found
