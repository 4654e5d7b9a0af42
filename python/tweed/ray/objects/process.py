"""A process's part in sharing objects."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from tweed import _core
from tweed.errors import TweedError, UsageError
from tweed.ray.objects.futures import Future, Reduced, Reduction
from tweed.ray.objects.lists import (
    Shapes,
    array_of,
    arrays_of,
    decode,
    encode,
    is_list,
    layout_of,
    shapes_ref,
    split,
)
from tweed.ray.objects.refs import Ref

_OPERATORS = {
    "sum": "SUM",
    "product": "PRODUCT",
    "min": "MIN",
    "max": "MAX",
    "band": "BAND",
    "bor": "BOR",
    "bxor": "BXOR",
}
#: A thread that hears of nothing looks this often whether the process is done, in seconds.
_LOOK_S = 3600.0
#: What a message costs a process, in seconds: threads, locks and sealing, on processors that others use, too.
#: Given, and not measured: pulls do not show it (`crates/net/src/objects/measured.rs`).
_MESSAGE_S = 1e-3
#: The shapes of a list are asked for when it is here; they are small, and were put before it. In seconds.
_SHAPES_S = 60.0
#: Which ids are in a sum, by range of bytes.
_Included = list[tuple[int, int, list[int]]] | None
#: Who waits for a block looks so often whether its object has failed, in seconds.
_BLOCK_S = 0.05


class Objects:
    """Puts, gets and sums objects with the processes that this one has met. Any thread may call.

    Arrays are NumPy arrays of any shape: floats, integers, booleans; or lists of them. What is put
    is copied once, unless it is written in place (`create`); what `get` gives is read-only and shares the
    store's memory, on one host that of the process that has made it.

    Args:
      address: "host:port" to listen on, by which others reach this process; port 0 is any.
      secret: the same 16 characters or more at all processes; None: on loopback alone.
      capacity: bytes that objects may take here.
      testbed: the network namespace of a testbed, in which no secret is needed.
      deadline: seconds after which a process that cannot be reached is lost; one that has ended is at once.
      latency_s, rate: of this process's links, in seconds and payload bytes per second, until they have been
        measured; trees and blocks are chosen by them.
      wire_only: share no memory, not even within a host. Else processes of one host, network and user map
        what one of them has, and nothing is copied between them.

    Raises:
      UsageError: an address that others could reach, without a secret; one that is not this machine's.
      ForkedProcess: from every method, in a fork of the process that made it.

    Cost: two threads, one more in Python, one socket per other process. Source: Hoplite (Zhuang et al. 2021).

    Example:
        >>> with Objects() as one, Objects() as other:
        ...     other.meet([one.descriptor])
        ...     other.get(one.put(np.arange(3))).result(timeout=5)
        {}
        array([0, 1, 2])
    """

    def __init__(  # noqa: PLR0913 - options of a user, by their names
        self,
        *,
        address: str = "127.0.0.1:0",
        secret: str | None = None,
        capacity: int = 1 << 30,
        testbed: str | None = None,
        deadline: float = 10.0,
        latency_s: float = 1e-4,
        rate: float = 125e6,
        wire_only: bool = False,
    ) -> None:
        core = _core.Objects(
            address=address,
            secret=secret,
            most_bytes=capacity,
            testbed=testbed,
            latency_s=latency_s,
            rate=rate,
            message_s=_MESSAGE_S,
            silence_s=deadline,
            wire_only=wire_only,
        )
        self._core, self._calls = core, _Calls(core)
        self._close = weakref.finalize(self, core.close)

    @property
    def descriptor(self) -> bytes:
        """The address by which others reach this process: give it to their `meet`."""
        return self._core.descriptor

    @property
    def used(self) -> int:
        """Bytes that objects take here now, also those of deleted ones that are still held."""
        return self._core.room[0]

    @property
    def taken_twice(self) -> int:
        """Bytes that came once more: a link broke, or a process died, before all of their block had come.

        Of a copy, at most a block each time, and what was under way from a process that did not answer when
        another took its place. Of a sum, also what had come for a place of its tree that
        begins anew, as a process has died.
        """
        return self._core.taken_twice

    def meet(self, descriptors: Sequence[bytes]) -> dict[bytes, str]:
        """Meets other processes, of which some may be known, and this one. Whoever comes later calls.

        Returns: why some cannot be reached, by descriptor; they may have ended.

        Raises: UsageError if one has another secret, or is no process that shares objects.
        """
        return {descriptors[place]: why for place, why in self._core.meet(list(descriptors))}

    def put(self, value: Any, ref: Ref | None = None, *, timeout: float = 60.0) -> Ref:
        """An object is there. Others take its beginning while the rest is copied.

        Args:
          value: an array, or what NumPy makes one of; or a list or tuple of arrays or CPU tensors of one
            dtype, which is one object: `get` gives a list.
          ref: its id, if others ask for it already.
          timeout: how long to wait for room, in seconds.

        Raises: UsageError if there is no room in time (it names what fills the store), if the id is taken
          here, if the dtype is none that is known, or if those of a list differ.
        """
        if is_list(value):
            return self._put_list(arrays_of(value), ref or Ref.new(), timeout)
        array = np.ascontiguousarray(array_of(value))
        ref = ref or Ref.new()
        self._core.put(ref.id, _dtype(array.dtype), np.shape(value), [_span(array)], timeout)
        return ref

    def _put_list(self, arrays: Sequence[npt.NDArray[Any]], ref: Ref, timeout: float) -> Ref:
        shapes, dtype = tuple(array.shape for array in arrays), arrays[0].dtype
        layout, numel = layout_of(shapes), sum(array.size for array in arrays)
        if not self._calls.knows(layout):
            with contextlib.suppress(UsageError):  # it may just have come; a full store is named below
                self.put(np.frombuffer(encode(shapes), np.uint8), shapes_ref(layout), timeout=timeout)
            self._calls.learn(layout, shapes)
        # One call copies all of them, so that no signal can come between.
        whole = [np.ascontiguousarray(array, dtype) for array in arrays]
        self._core.put(ref.id, _dtype(dtype), (numel,), list(map(_span, whole)), timeout, layout)
        return ref

    def create(
        self,
        shape: Sequence[int],
        dtype: npt.DTypeLike = np.float32,
        ref: Ref | None = None,
        *,
        timeout: float = 60.0,
    ) -> Writer:
        """Room for an object that is written in place, from its first element on. Else as `put`.

        What the array holds before it is written is undefined.
        It is deleted if the writer and its array are let go of before all is written: nobody waits in vain.
        """
        ref = ref or Ref.new()
        memory = self._core.create(ref.id, _dtype(np.dtype(dtype)), tuple(shape), timeout)
        return Writer(self._core, ref, np.asarray(memory))

    def get(self, ref: Ref, *, timeout: float | None = None) -> Future[Any]:
        """A copy of an object, which may not be there yet.

        Args:
          timeout: the deadline of the call, in seconds; None: it waits as long as it takes.

        Returns: a future of the array, or of a list of them if one was put. It ends with DeadlineExceeded,
          which says how far it came, with UsageError if the object was deleted, with Aborted when this
          process closes.
        """
        future: Future[Any] = Future()
        self._calls.begin(future, lambda: self._core.get(ref.id, timeout))
        return future

    def reduce(
        self,
        refs: Sequence[Ref],
        count: int | None = None,
        op: str = "sum",
        *,
        mode: str = "whole",
        rule: str = "measured",
        target: Ref | None = None,
        timeout: float | None = None,
    ) -> Reduction:
        """The sum of the first `count` of `refs` that appear, formed on the way.

        Args:
          refs: what may be summed, each once; arrays of one dtype and shape, or lists of such.
          count: how many of them; None: all.
          op: "sum", "product", "min", "max", or "band", "bor", "bxor" of integers and booleans. A mean is
            `Reduced.mean` of a sum.
          mode: when a process dies of whose object a part was summed: "whole" sums anew what holds it; in
            "ranges" that stays, and the answer names the refs of each range.
          rule: how the tree is chosen: "measured" by a model with the cost per message, "hybrid" as in
            Hoplite's repository, "degree" as in its paper.
          target: the id of the sum, if others ask for it already.
          timeout: as for `get`.

        Raises: UsageError if there is no such operator, mode or rule, or `count` is above that of the refs.

        Returns: a future of `Reduced`. It ends with ShapeMismatch if objects are not alike, with UsageError
          if the operator does not go with them, and as `get` does.
        """
        if op not in _OPERATORS:
            raise UsageError(
                f"op must be one of {', '.join(_OPERATORS)}, not {op!r}; a mean is that of a sum"
            )
        ids = [ref.id for ref in refs]
        count = len(ids) if count is None else count
        if not 1 <= count <= len(ids):
            raise UsageError(f"count must be from 1 to the number of refs, {len(ids)}, not {count}")
        target_id, name = (target or Ref.new()).id, _OPERATORS[op]

        def placed(patience_s: float) -> list[int]:
            found = self._core.placed(target_id, count, patience_s)
            return found if len(found) == count else []

        reduction, how = Reduction(Ref(target_id), placed), (name, mode, rule, timeout)
        self._calls.begin(reduction, lambda: self._core.reduce(target_id, ids, count, *how))
        return reduction

    def blocks(self, ref: Ref, *, timeout: float | None = None) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """The elements of an object as they come, while others may still write or sum them.

        Returns: an iterator over `(first element, elements)`, of the flat array, without gaps; the arrays
          of a list follow each other. Where a sum begins anew, as a process has died, the first element is 0
          once more.

        Raises: what `get` ends with. Cost: as `get`, and a look per block.
        """
        done, mark, address = self.get(ref, timeout=timeout), 0, None
        while True:
            is_done = done.done()
            found = self._core.mark(ref.id, mark, 0.0 if is_done else _BLOCK_S)
            if is_done:
                done.result()
            if found is not None:
                array = np.asarray(found[0]).reshape(-1)
                begins_anew = address is not None and address != array.ctypes.data
                begin = 0 if begins_anew or found[1] < mark else mark
                address, mark = array.ctypes.data, found[1]
                if begin < mark:
                    yield begin // array.itemsize, array[begin // array.itemsize : mark // array.itemsize]
            if is_done:
                return

    def delete(self, ref: Ref) -> None:
        """Nobody is to have the object any more; arrays of it that are held stay as they are."""
        self._core.delete(ref.id)

    def close(self) -> None:
        """Leaves: to others this process is gone, with all that only it holds. Calls end with Aborted."""
        self._close()

    def __enter__(self) -> Objects:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Writer:
    """An object while it is written: `array[:n] = ...`, `advance(n)`, and so on to its end; or `seal()`.

    What is behind the mark must not be written again: others read it, those of this host in this very memory.
    """

    def __init__(self, core: _core.Objects, ref: Ref, array: npt.NDArray[Any]) -> None:
        self._core, self.ref, self.array = core, ref, array

    def advance(self, numel: int) -> None:
        """The first `numel` elements are there, for good.

        Raises: UsageError if the mark would go back or beyond the end, or the object was deleted.
        """
        self._core.advance(self.ref.id, numel * self.array.itemsize)

    def seal(self) -> Ref:
        """All elements are there. Returns the ref."""
        self.advance(self.array.size)
        self.array.flags.writeable = False
        return self.ref


class _Calls:
    """The calls of a process under way, and the thread that hears of their ends."""

    def __init__(self, core: _core.Objects) -> None:
        self._core, self._lock = core, threading.Lock()
        self._open: dict[int, Future[Any]] = {}
        self._shapes: dict[int, Shapes] = {}
        threading.Thread(target=self._hear, name="tweed-objects-ended", daemon=True).start()

    def begin(self, future: Future[Any], call: Any) -> None:
        """Makes a call. Its end may be heard of before it returns, so it is made under the lock.

        A signal may come when it is made and before it is noted: then nobody has its future.
        """
        future.set_running_or_notify_cancel()
        with self._lock:
            self._open[call()] = future

    def knows(self, layout: int) -> bool:
        """The shapes of such lists were put, or have come."""
        return layout in self._shapes

    def learn(self, layout: int, shapes: Shapes) -> None:
        """Shapes of lists, from now on."""
        self._shapes[layout] = shapes

    def _hear(self) -> None:
        is_over = False
        while not is_over:
            ended = self._core.ended(_LOOK_S)
            is_over = not ended and self._core.is_closed
            while ended:  # what one call has brought is not held here until another one ends
                self._end(*ended.pop(0))

    def _end(self, number: int, what: Any, included: _Included) -> None:
        with self._lock:
            future = self._open.pop(number, None)
        if future is None:
            return None
        if isinstance(what, Exception):
            return future.set_exception(what)
        if what.list is None or what.list in self._shapes:
            return _give(future, np.asarray(what), included, self._shapes.get(what.list))
        # One more call, for the shapes: whoever has put such a list has put them before.
        shapes: Future[Any] = Future()
        shapes.add_done_callback(lambda done: self._end_list(future, what, included, done))
        try:
            self.begin(shapes, lambda: self._core.get(shapes_ref(what.list).id, _SHAPES_S))
        except TweedError as error:  # it has been closed
            shapes.set_exception(error)

    def _end_list(self, future: Future[Any], what: Any, included: _Included, done: Any) -> None:
        if error := done.exception():
            return future.set_exception(error)
        shapes = decode(done.result().tobytes())
        self.learn(what.list, shapes)
        return _give(future, np.asarray(what), included, shapes)


def _give(future: Future[Any], flat: npt.NDArray[Any], included: _Included, shapes: Shapes | None) -> None:
    array = flat if shapes is None else split(flat, shapes)
    if not isinstance(future, Reduction):
        return future.set_result(array)
    size = flat.itemsize
    ranges = [(begin // size, end // size, frozenset(map(Ref, ids))) for begin, end, ids in included or []]
    return future.set_result(Reduced(future.ref, array, ranges))


def _span(array: npt.NDArray[Any]) -> tuple[int, int]:
    """Where it lies, and its bytes."""
    return array.ctypes.data, array.nbytes


def _dtype(dtype: np.dtype[Any]) -> str:
    known = {"float16", "float32", "float64", "bool"} | {
        f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
    }
    if dtype.name not in known or not dtype.isnative:
        raise UsageError(f"objects have no elements of dtype {dtype}: convert them, or pickle into uint8")
    return str(dtype.name)
