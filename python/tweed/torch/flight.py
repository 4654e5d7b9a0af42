"""Operations in flight, for the Python process group. The twin of csrc/work.cpp."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tweed import errors
from tweed.torch.engine import ERRORS, Callback, Segment, Status, Table
from tweed.torch.host_memory import Call

Future = torch.futures.Future[list[Tensor]]

_SLICE_MS = 200  # how late Ctrl-C may be noticed

# All that are under way: their memory must not go before they end, even if nobody holds them.
_flying: set[Flight] = set()


class Flight:
    """One operation of the engine, and the memory it works on."""

    def __init__(self, engine: Table, group: int, call: Call) -> None:
        _sweep()
        inputs, outputs = _array(call.inputs), _array(call.outputs)
        call.request.inputs, call.request.n_inputs = inputs, len(call.inputs)
        call.request.outputs, call.request.n_outputs = outputs, len(call.outputs)
        self.call = call
        self._engine = engine
        self._op: int = engine.submit(group, call.request)
        self._lock = threading.Lock()
        self._settled = self._watched = False
        self._futures: list[Future] = []
        _flying.add(self)
        if call.back:  # results must be copied back even if nobody waits
            self._watch()

    def done(self) -> bool:
        """It has ended, well or badly."""
        return bool(self._engine.test(self._op) != Status.PENDING)

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits for the end, `timeout_s` at most (None: as long as the operation's own deadline allows).

        Raises:
          PeerLost, ShapeMismatch, ...: what the operation ended with.
          DeadlineExceeded: `timeout_s` has passed; the operation goes on.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_ms = _SLICE_MS if end is None else min(_SLICE_MS, max(0.0, end - time.monotonic()) * 1000)
            if self._engine.wait(self._op, int(left_ms)) != Status.PENDING:
                break
            if end is not None and time.monotonic() >= end:
                raise errors.DeadlineExceeded(f"it has not ended within {timeout_s} s, and goes on")
        self.settle()
        if (error := self.error()) is not None:
            raise error

    def error(self) -> errors.TweedError | None:
        """What it ended with; None if it ended well or has not ended."""
        status = self._engine.test(self._op)
        if status in (Status.OK, Status.PENDING):
            return None
        return ERRORS[status](self._engine.message(self._op).decode())

    def settle(self) -> None:
        """After the end, once: staged results reach the caller."""
        with self._lock:  # the thread that waits and one of the engine's may both come here
            if not self._settled and self.error() is None:
                self.call.settle()
            self._settled = True
        _flying.discard(self)

    def source(self) -> int:
        """Who sent, after a receive."""
        return int(self._engine.source(self._op))

    def notify(self, future: Future) -> None:
        """Completes `future` when the operation has ended."""
        with self._lock:
            self._futures.append(future)
        self._watch()

    def _watch(self) -> None:
        """Asks the engine for a call at the end; the engine takes one such wish."""
        with self._lock:
            first, self._watched = not self._watched, True
        if first:
            self._callback = Callback(self._ended)
            self._engine.on_end(self._op, self._callback, None)
        elif self.done():  # the engine's call may have come before this future was there
            self._complete_futures()

    def _ended(self, _context: object) -> None:
        self.settle()
        self._complete_futures()

    def _complete_futures(self) -> None:
        with self._lock:
            futures, self._futures = self._futures, []
        error = self.error()
        for future in futures:
            if error is None:
                future.set_result(self.call.results)
            else:
                future.set_exception(error)  # type: ignore[arg-type]  # torch's stub is wrong

    def __del__(self) -> None:
        self._engine.release(self._op)


# In a fork none of them ends, nor does anybody work on their memory.
os.register_at_fork(after_in_child=_flying.clear)


def _sweep() -> None:
    """Lets go of what has ended without anybody waiting for it."""
    for flight in tuple(_flying):
        if flight.done():
            flight.settle()


class Work(dist.Work):
    """torch's view of one or more operations in flight."""

    def __init__(self, flights: Sequence[Flight], sequence: int) -> None:
        super().__init__()
        self.flights = list(flights)
        self.sequence = sequence

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        for flight in self.flights:
            flight.wait(timeout.total_seconds() or None)
        return True

    def is_completed(self) -> bool:
        return all(flight.done() for flight in self.flights)

    def is_success(self) -> bool:
        return self.exception() is None

    def exception(self) -> Any:
        return next((error for flight in self.flights if (error := flight.error())), None)

    def result(self) -> list[Tensor]:
        return [tensor for flight in self.flights for tensor in flight.call.results]

    def source_rank(self) -> int:
        return self.flights[0].source()

    def get_future(self) -> torch.futures.Future[Any]:
        parts: list[Future] = [torch.futures.Future() for _ in self.flights]
        for flight, part in zip(self.flights, parts, strict=True):
            flight.notify(part)
        if len(parts) == 1:
            return parts[0]
        return torch.futures.collect_all(parts).then(
            lambda all_: [t for part in all_.value() for t in part.value()]
        )

    _source_rank = source_rank


def _array(segments: list[Segment]) -> Any:
    return (Segment * len(segments))(*segments)
