"""The data of members: the order in which samples are dealt, and batches of them that a DataLoader has loaded
ahead, as far as who deals them stays the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from tweed.data.sampler import GlobalOrder, Sampler
from tweed.errors import UsageError

#: Options of a DataLoader that say which samples come when.
_OURS = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "in_order")
#: The batches behind one, if no member comes or goes.
Upcoming = Callable[[], Iterator[tuple[int, ...]]]


def partitioned(
    dataset: Any, batch: int | None, per_member: int | None, seed: int, every: int = 1
) -> Sampler:
    """Whose samples come when, as `ElasticTraining.batches` is asked for it.

    Args:
      every: local steps of a round, each over a batch.

    Raises: UsageError: the data set has no numbers, or not one of both sizes is given.
    """
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise UsageError(
            f"run.batches({type(dataset).__name__}): samples are dealt by number, and dealt again when a "
            "member is lost: give a data set with __len__ and __getitem__"
        )
    if (batch is None) == (per_member is None):
        raise UsageError(
            "run.batches(): give batch=, samples of a step of all members together, or per_member=, of "
            "each of them; one of the two"
        )
    total = every * (batch or per_member or 0)
    return Sampler(GlobalOrder(len(dataset), seed), total, per_member is not None)


def check_loader(options: Mapping[str, Any]) -> None:
    """Raises: UsageError for options of a DataLoader that say which samples come when."""
    if given := [name for name in _OURS if name in options]:
        raise UsageError(
            f"run.batches({given[0]}=...): the members deal samples among themselves, and a part of the "
            "data for each rank would be lost with it. Give the whole data set, and batch=: samples of a "
            "step of all together"
        )


class Loader:
    """Batches by their samples.

    Args:
      dataset: with items by number.
      upcoming: of the batch that is asked for.
      options: of torch's DataLoader.
    """

    def __init__(self, dataset: Any, upcoming: Upcoming, options: Mapping[str, Any]) -> None:
        self._dataset, self._upcoming, self._options = dataset, upcoming, options
        self._feed = Feed()
        self._source: Iterator[Any] | None = None
        self._kept: dict[tuple[int, ...], Any] = {}

    def load(self, samples: tuple[int, ...]) -> Any:
        """The batch of these."""
        if self._source is None:
            self._feed.expect(samples, self._upcoming)  # workers of a loader draw at once
            self._source = iter(DataLoader(self._dataset, batch_sampler=self._feed, **self._options))
        return self._feed.take(self._source, samples, self._upcoming)

    def keep(self, samples: tuple[int, ...]) -> Any:
        """The batch of these samples, which is loaded once until `drop`."""
        if samples not in self._kept:
            self._kept[samples] = self.load(samples)
        return self._kept[samples]

    def drop(self) -> None:
        """No batch that is kept is needed any more."""
        self._kept.clear()


class Feed:
    """The batch sampler of a DataLoader, which may draw ahead: what came of another deal is passed over.

    Example:
      >>> feed = Feed()
      >>> source = iter(feed)
      >>> feed.take(source, (0, 1), lambda: iter([(2, 3), (4, 5)]))
      [0, 1]
      >>> feed.take(source, (6, 7), lambda: iter([]))
      [6, 7]
    """

    def __init__(self) -> None:
        self._drawn: deque[tuple[int, ...]] = deque()
        self._ahead: Iterator[tuple[int, ...]] = iter(())

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            batch = next(self._ahead, None)
            if batch is None:
                return
            self._drawn.append(batch)
            yield list(batch)

    def expect(self, batch: tuple[int, ...], upcoming: Upcoming) -> None:
        """From now on these are drawn."""
        self._ahead = chain([batch], upcoming())

    def take(self, source: Iterator[Any], batch: tuple[int, ...], upcoming: Upcoming) -> Any:
        """What `source`, which draws here, has for this batch.

        Args:
          upcoming: what is to be drawn behind it.
        """
        if not self._drawn:
            self.expect(batch, upcoming)
        expected = False
        while True:
            data = next(source)
            if self._drawn.popleft() == batch:
                return data
            if not expected:
                self.expect(batch, upcoming)
                expected = True
