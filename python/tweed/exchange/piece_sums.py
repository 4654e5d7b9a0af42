"""Sums of pieces of buckets, one after the other as a list says.

Theory of operation. Buckets are offered while the backward pass fills them, and sums of pieces end in threads
of the backend; each such event may let others begin. Whoever brings an event puts it into a queue. One thread
at a time takes events from there: who finds another at it leaves the event to that one, which looks again
before it goes. So sums begin one after the other, in the order of the list, and no thread waits for a lock.

All ranks keep to one list, so that a rank that waits for the end of a sum before it begins the next one waits
for ranks that are at the same place or before it. They begin at times that nobody foresees, so they need a
group that no other thread starts anything in meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import torch.distributed as dist
from torch import Tensor

from tweed.exchange.bucket import Bucket
from tweed.order import Ended, Offered, Piece, pieces
from tweed.order.listed import Position
from tweed.order.piece_list import PieceList


class BucketSum:
    """The sums of one bucket's pieces, as a work."""

    def __init__(self, pieces: int) -> None:
        self.left = pieces
        self.works: list[dist.Work] = []
        self.error: BaseException | None = None
        self._ended = threading.Event()

    def end(self) -> None:
        """Nothing is under way any more."""
        self._ended.set()

    def wait(self) -> bool:
        """Returns when all values are sums. Raises what the backend raises, or what a start has raised."""
        self._ended.wait()
        for work in self.works:
            work.wait()
        if self.error is not None:
            raise self.error
        return True


class PieceSums:
    """Begins sums of pieces as a list says.

    Args:
      buckets: by layer, the one that the next forward pass reads first at the front.
      begin: starts the sum of such values, in a group of its own.
      now: a clock, in seconds.

    Attributes:
      busy_s, bytes_summed: since `keep_to`: for how long at least one sum was under way, and of how much.
    """

    def __init__(
        self, buckets: Sequence[Bucket], begin: Callable[[Tensor], dist.Work], now: Callable[[], float]
    ) -> None:
        self._buckets = buckets
        self._layers = {bucket: layer for layer, bucket in enumerate(buckets)}
        self._begin, self._now = begin, now
        self._sums: dict[int, BucketSum] = {}
        self._events: SimpleQueue[Offered | Ended] = SimpleQueue()
        self._turn = threading.Lock()
        self._failed: tuple[list[dist.Work], BaseException | None] | None = None

    def keep_to(self, now: PieceList) -> None:
        """From now on. Nothing may be under way."""
        self._piece_bytes = now.setting.piece_bytes
        self._order = now.order
        self._state: Position = self._order.start()
        self.busy_s, self.bytes_summed, self._busy_since = 0.0, 0, 0.0

    def offer(self, bucket: Bucket) -> BucketSum:
        """All of `bucket` is there."""
        layer = self._layers[bucket]
        transfers = [*pieces(layer, bucket.flat.nbytes, most_bytes=self._piece_bytes)]
        found = self._sums[layer] = BucketSum(len(transfers))
        for transfer in transfers:
            self._events.put(Offered(transfer))
        self._go_on()
        return found

    def _go_on(self) -> None:
        while not self._events.empty() and self._turn.acquire(blocking=False):
            try:
                while not self._events.empty():
                    self._take(self._events.get())
            finally:
                self._turn.release()

    def _take(self, event: Offered | Ended) -> None:
        if isinstance(event, Ended) and len(self._state.under_way) == 1:
            self.busy_s += self._now() - self._busy_since
        self._state = self._order.handle(event, self._state, 0.0)
        while self._failed is None:
            decision, self._state = self._order.poll(self._state, 0.0)
            if decision is None:
                break
            self._start(decision.key)
        if self._failed is not None:
            self._give_up(*self._failed)
        elif isinstance(event, Ended):
            self._end(event.key)  # last: the one who waits for it may keep to another list at once

    def _start(self, piece: Any) -> None:
        count = self._piece_bytes // self._buckets[piece.layer].flat.element_size()
        values = self._buckets[piece.layer].flat[piece.place * count : (piece.place + 1) * count]
        if len(self._state.under_way) == 1:
            self._busy_since = self._now()
        self.bytes_summed += values.nbytes
        try:
            work = self._begin(values)
            self._sums[piece.layer].works.append(work)
            work.get_future().add_done_callback(lambda future: self._ended(piece, work, future))
        except BaseException as error:  # noqa: BLE001 - whoever waits raises it
            self._failed = [], error

    def _ended(self, piece: Piece, work: dist.Work, future: Any) -> None:
        try:
            future.value()
        except Exception:  # noqa: BLE001 - whoever waits for the work raises it
            self._failed = [work], None
        self._events.put(Ended(piece))
        self._go_on()

    def _end(self, piece: Any) -> None:
        of_bucket = self._sums[piece.layer]
        of_bucket.left -= 1
        if of_bucket.left == 0:
            of_bucket.end()

    def _give_up(self, works: list[dist.Work], error: BaseException | None) -> None:
        """No sum begins any more: whoever waits hears why."""
        for one in self._sums.values():
            if one.left:
                one.works, one.error, one.left = works, error, 0
                one.end()
