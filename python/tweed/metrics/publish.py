"""The thread that hands a process's metrics on: to rank 0, and from there to whoever looks.

One thread per process that is in a group of at least two ranks, asleep between rows. It follows one group at
a time, the oldest that is left, which is the one of all ranks as a rule. It never takes the run down: what
goes wrong here is a warning.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import selectors
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from tweed.errors import TweedError
from tweed.metrics import job
from tweed.metrics.live import Listener
from tweed.metrics.options import MetricsOptions, address
from tweed.metrics.snapshot import Matrix, Row
from tweed.metrics.source import Source, row

log = logging.getLogger("tweed")

_MOST_BYTES = 64 << 10  # what the engine takes as a note (crates/net/src/group.rs)
_FIRST_S = 0.2  # groups that live no longer cost nothing


class Outlet(Protocol):
    """A place that matrices go to."""

    def show(self, matrix: Matrix) -> None:
        """Takes a new matrix."""

    def close(self) -> None:
        """The group has ended."""

    def disown(self) -> None:
        """In a fork: what the outlet holds is the parent's."""


class Gathering:
    """One group: this rank's row goes to rank 0, which lays all rows side by side.

    Args:
      source: the group.
      began: now, in seconds of any clock that only grows; all later times must be of the same.
    """

    def __init__(self, source: Source, began: float) -> None:
        self.source = source
        self._began = began
        self._rows: dict[int, tuple[bytes, float]] = {}
        self._shortened = False

    def publish_row(self, now: float) -> None:
        """Posts this rank's row. Raises: TweedError when the group is gone."""
        mine = row(self.source, os.getpid(), now - self._began, job.training())
        self.source.post(self._short(mine))

    def _short(self, mine: Row) -> bytes:
        """A row as text; with the busiest links only where all of them would be too long for the engine."""
        links = sorted(mine.links, key=lambda link: link.bytes_out + link.bytes_in, reverse=True)
        while len(text := mine.encode()) > _MOST_BYTES and links:
            links = links[: len(links) // 2]
            if not self._shortened:
                self._shortened = True
                log.warning(
                    "rank %d: the metrics of %d links are more than %d bytes; "
                    "only those of the busiest links are told",
                    *(mine.rank, len(mine.links), _MOST_BYTES),
                )
            mine = replace(mine, links=tuple(sorted(links, key=lambda link: link.peer)))
        return text

    def matrix(self, now: float) -> Matrix:
        """At rank 0: the rows that all have told so far. Raises: TweedError when the group is gone."""
        for rank, text in self.source.posted().items():
            if self._rows.get(rank, (b"", 0.0))[0] != text:
                self._rows[rank] = (text, now)
        rows = tuple(self._row(rank, now) for rank in sorted(self._rows))
        up_s, epoch = now - self._began, self.source.epoch
        return Matrix(job.name(), os.getpid(), self.source.size, up_s, rows, job.hub(), epoch)

    def _row(self, rank: int, now: float) -> Row:
        text, at = self._rows[rank]
        return Row.decode(text, silent_s=now - at)


def _is_gone(source: Source) -> bool:
    try:
        return source.rank < 0
    except TweedError:
        return True


class Publisher:
    """Hands on the metrics of one group at a time. Its thread starts with the first group, and ends with
    the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[Source, MetricsOptions]] = []
        self._thread: threading.Thread | None = None
        self._outlets: list[Outlet] = []
        self._wakeup = os.eventfd(0)
        self._stopped = False

    def follow(self, source: Source, options: MetricsOptions) -> None:
        """Hands on the metrics of `source` until it is gone, once the groups before it are."""
        with self._lock:
            self._waiting = [group for group in self._waiting if not _is_gone(group[0])] + [(source, options)]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tweed-metrics", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Hands on the last metrics and ends the thread. For the end of the process."""
        self._stopped = True
        os.eventfd_write(self._wakeup, 1)
        if (thread := self._thread) is not None:
            thread.join()
        os.close(self._wakeup)

    def disown(self) -> None:
        """In a fork, which has no such thread: closes what it has inherited."""
        for outlet in self._outlets:
            outlet.disown()
        os.close(self._wakeup)

    def _next(self) -> tuple[Source, MetricsOptions] | None:
        with self._lock:
            if not self._waiting or self._stopped:
                self._thread = None
                return None
            return self._waiting.pop(0)

    def _run(self) -> None:
        while (group := self._next()) is not None:
            try:
                self._serve(*group)
            except TweedError:
                pass  # the group is gone
            except Exception:
                log.warning("the metrics of this group are not told any further", exc_info=True)
            finally:
                self._close_outlets()

    def _serve(self, source: Source, options: MetricsOptions) -> None:
        gathering = Gathering(source, time.monotonic())
        self._rest(min(_FIRST_S, options.every_s))
        if self._stopped:
            return
        if source.rank == 0:
            self._open_outlets(options)
        while self._tick(gathering) and not self._stopped:
            self._rest(options.every_s)

    def _tick(self, gathering: Gathering) -> bool:
        """Whether the group is still there."""
        try:
            gathering.publish_row(time.monotonic())
            if gathering.source.rank == 0:
                matrix = gathering.matrix(time.monotonic())
                for outlet in self._outlets:
                    outlet.show(matrix)
        except TweedError:
            return False
        return True

    def _rest(self, seconds: float) -> None:
        """Sleeps until it is time for the next row or to stop; lets clients of `tweed top` in meanwhile."""
        end = time.monotonic() + seconds
        # Not `select`, which knows no descriptor beyond 1023: the sockets of a few hundred peers are as many.
        with selectors.PollSelector() as ready:
            ready.register(self._wakeup, selectors.EVENT_READ)
            for outlet in self._outlets:
                if isinstance(outlet, Listener):
                    ready.register(outlet.fileno(), selectors.EVENT_READ, outlet)
            while not self._stopped and (left := end - time.monotonic()) > 0:
                for key, _ in ready.select(left):
                    if key.data is not None:
                        key.data.admit()

    def _open_outlets(self, options: MetricsOptions) -> None:
        for make in (_listener, _exporter, _board, _provider):
            try:
                outlet = make(options)
            except (TweedError, OSError) as error:
                log.warning("%s; the run goes on without", error)
            else:
                self._outlets += [outlet] if outlet is not None else []

    def _close_outlets(self) -> None:
        outlets, self._outlets = self._outlets, []
        for outlet in outlets:
            with suppress(OSError):
                outlet.close()


def _listener(options: MetricsOptions) -> Outlet | None:
    return Listener(str(os.getpid()))


def _exporter(options: MetricsOptions) -> Outlet | None:
    if options.prometheus is None:
        return None
    from tweed.metrics.prometheus import Exporter

    return Exporter(address(options.prometheus))


def _board(options: MetricsOptions) -> Outlet | None:
    if options.tensorboard is None:
        return None
    from tweed.metrics.tensorboard import Board

    return Board(options.tensorboard)


def _provider(options: MetricsOptions) -> Outlet | None:
    if options.opentelemetry is None:
        return None
    from tweed.metrics.opentelemetry import Provider, sender

    return Provider(sender(options.opentelemetry, options.every_s))


_publisher: Publisher | None = None


def publish(source: Source, options: MetricsOptions, fewest: int = 2) -> None:
    """Hands on the metrics of a group until it is gone or the process ends. Returns at once.

    A group of one rank has no links, and nothing is started for it, unless the `fewest` ranks are as many: a
    hub without a group is one.
    """
    global _publisher
    if not options.every_s or source.size < fewest:
        return
    if options.tensorboard is not None and source.rank == 0:
        import tweed.metrics.tensorboard  # noqa: F401 takes a second, which is no work for the thread
    if _publisher is None:
        _hook()
        _publisher = Publisher()
    _publisher.follow(source, options)


def stop() -> None:
    """Hands on the last metrics and ends the thread, if there is one. It must not run when Python ends."""
    global _publisher
    publisher, _publisher = _publisher, None
    if publisher is not None:
        publisher.stop()


@functools.cache
def _hook() -> None:
    atexit.register(stop)
    os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    global _publisher
    publisher, _publisher = _publisher, None
    if publisher is not None:
        publisher.disown()
