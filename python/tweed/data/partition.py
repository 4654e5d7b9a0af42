"""How samples are assigned to ranks. Pure: the same labels, number and seed give the same parts.

Every sample goes to exactly one rank, and every rank gets at least one if there are enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tweed.errors import UsageError

Indices = NDArray[np.int64]
#: What `Partition.parse` reads, in words.
KINDS = "iid, by_label, shards:COUNT and dirichlet:ALPHA, for example shards:2 or dirichlet:0.3"


@dataclass(frozen=True, slots=True)
class Partition:
    """How to deal: `kind` is iid, dirichlet, by_label or shards; `alpha` is the number behind the colon.

    - iid: shuffled, then cut into equal parts.
    - dirichlet: each label is cut in proportions drawn from a Dirichlet distribution with all parameters
      `alpha`; small means uneven. Source: Hsu, Qi, Brown, "Measuring the effects of non-identical data
      distribution", 2019.
    - by_label: sorted by label, then cut into equal parts.
    - shards: sorted by label, cut into `alpha` equal shards per rank, of which each rank gets as many by
      chance: most ranks have `alpha` labels. Source: McMahan et al., "Communication-efficient learning of
      deep networks from decentralized data", 2017, section 3.

    Example:
      >>> Partition.parse("dirichlet:0.3").alpha
      0.3
    """

    kind: str = "iid"
    alpha: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Partition:
        """Reads "iid", "by_label", "shards:COUNT" or "dirichlet:ALPHA", for example "dirichlet:0.3".

        Raises: UsageError for anything else.
        """
        kind, _, rest = text.partition(":")
        if kind in ("iid", "by_label") and not rest:
            return cls(kind)
        alpha = _number(rest) if kind in ("dirichlet", "shards") else 0.0
        if not 0.0 < alpha < np.inf or (kind == "shards" and not alpha.is_integer()):
            raise UsageError(f"no partition {text!r}; there are {KINDS}")
        return cls(kind, alpha)

    def __str__(self) -> str:
        return f"{self.kind}:{self.alpha:g}" if self.kind in ("dirichlet", "shards") else self.kind


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def deal(labels: Indices, ranks: int, partition: Partition, seed: int) -> list[Indices]:
    """Deals samples out to `ranks` ranks.

    Args:
      labels: `[n]`, the label of each sample.
      ranks: 1 or more, at most n.

    Returns: for each rank the indices of its samples, ascending.

    Raises: UsageError if there are fewer samples than ranks, or than shards.

    Example:
      >>> [part.tolist() for part in deal(np.array([1, 0, 1, 0]), 2, Partition("by_label"), seed=0)]
      [[1, 3], [0, 2]]
    """
    if not 1 <= ranks <= len(labels):
        raise UsageError(f"cannot deal {len(labels)} samples out to {ranks} ranks")
    # numpy's generator, not `tweed.rng`: the published figures were trained on the parts that it deals.
    random = np.random.default_rng([seed, ranks])
    if partition.kind == "iid":
        parts = np.array_split(random.permutation(len(labels)), ranks)
    elif partition.kind == "by_label":
        parts = np.array_split(np.argsort(labels, kind="stable"), ranks)
    elif partition.kind == "shards":
        parts = _shards(labels, ranks, int(partition.alpha), random)
    else:
        parts = _dirichlet(labels, ranks, partition.alpha, random)
    return [np.sort(part) for part in parts]


def _shards(labels: Indices, ranks: int, each: int, random: np.random.Generator) -> list[Indices]:
    if ranks * each > len(labels):
        raise UsageError(f"cannot cut {len(labels)} samples into {ranks * each} shards, {each} for each rank")
    shards = np.array_split(np.argsort(labels, kind="stable"), ranks * each)
    order = random.permutation(ranks * each).reshape(ranks, each)
    return [np.concatenate([shards[shard] for shard in mine]) for mine in order]


def _dirichlet(labels: Indices, ranks: int, alpha: float, random: np.random.Generator) -> list[Indices]:
    parts: list[list[Indices]] = [[] for _ in range(ranks)]
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        cuts = np.cumsum(random.dirichlet([alpha] * ranks))[:-1] * len(members)
        for part, share in zip(parts, np.split(members, np.rint(cuts).astype(np.int64)), strict=True):
            part.append(share)
    return _nobody_empty([np.concatenate(part) for part in parts])


def _nobody_empty(parts: list[Indices]) -> list[Indices]:
    """Gives each empty part one sample of the then largest part."""
    for rank, part in enumerate(parts):
        if len(part) == 0:
            rich = max(range(len(parts)), key=lambda other: len(parts[other]))
            parts[rank], parts[rich] = parts[rich][-1:], parts[rich][:-1]
    return parts
