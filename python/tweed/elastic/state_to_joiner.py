"""How a joiner gets the state of members that go on meanwhile. Nobody waits for it.

Theory of operation. A joiner asks the member of lowest rank (`Ask`). That one tells all members a step that
is some ahead, and who gives which part (`Give`). At the begin of that step each `Donor`, one of k, copies
its k-th part of the state, and sends it in chunks, with digests of all parts as it has them; behind it, of
each step that counts, its k-th part of the result. The joiner (`Copy`) puts the parts together, finds out by
the digests whose part is another than most have, and its own loop takes one result after the other, as if it
had computed them, so that it has what members have, bit by bit. When it is two steps behind it asks to be let
in. Members stop giving when they have entered an epoch that it is in.

    a donor    moved by                               to
    AHEAD      `state`, at its step                   FLOWING
               a later step                           none: too late, the joiner asks anew (`Refused`)
               no step is to count until others come  none: the joiner is let in first, with no state
    FLOWING    `result`, `got`, `poll`                FLOWING
               its joiner is let in (`last`)          ENDING
               more is kept for it than may be        none: it is too slow (`Refused`), and is told its rates
    ENDING     all is acknowledged                    none
    any        the joiner is gone                     none

A donor sends no more bytes than the round trip needs before they are acknowledged (`window`), so that what
members say to each other over the same links is never late. Who takes acknowledges results only when its loop
comes near to them, so its memory is bounded too. A donor that dies, or is silent for so long that the others
go on without it, cuts the joiner off: it copies a later state; or, where it has asked to be let in already,
it gets the whole state when it is, while all wait.

Pure: no clock but the `now` it is given, no threads, no sockets.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from torch import Tensor

from tweed.elastic.messages import CHUNK_BYTES, DIGESTS, RESULT, STRUCTURE, TENSORS, Chunk, Give
from tweed.elastic.state import DIGEST_BYTES, State, cut, digest_of
from tweed.elastic.window import Window
from tweed.errors import DataError
from tweed.exchange.encoding import as_bytes, from_bytes, most_state_bytes

#: Links that take more, in bytes a second, are quicker than what packs bytes.
_PACKED_BELOW = 32e6
#: Results that a joiner acknowledges before its loop has come to them.
_AHEAD = 4
#: Results are kept for a joiner up to so many times the state, and so many bytes.
_KEPT_STATES, _KEPT_BYTES = 4, 1 << 26
#: So far behind others it asks to be let in.
_NEAR_STEPS = 2


def mark_of(result: Tensor, where: Sequence[int]) -> int:
    """Tells results apart that differ, such as by rounding."""
    return zlib.crc32(_packed(where), zlib.crc32(as_bytes(result)))


def _packed(where: Sequence[int]) -> bytes:
    """What stands behind a result: where the steps are when it counts."""
    return struct.pack(f"<{len(where)}Q", *where)


@dataclass
class Donor:
    """What this process, one of the donors, gives to a joiner. See the module."""

    order: Give
    part: int
    began: float = 0.0
    state_bytes: int = 0
    acknowledged: int = 0
    kept: int = 0
    begun: bool = False
    ending: bool = False
    next_step: int = 0  # whose result is not given yet
    _queue: deque[tuple[int, int, int, int, int, memoryview]] = field(default_factory=deque)
    _flying: int = 0
    _window: Window = field(default_factory=Window)
    _first_result: float = 0.0

    def copy(self) -> Donor:
        """To be moved, and to take its place then."""
        return replace(self, _queue=self._queue.copy())

    def is_late(self, step: int) -> bool:
        """Its step is over, and nothing was copied."""
        return not self.begun and step > self.order.step

    def wants_state(self, step: int) -> bool:
        """This is its step."""
        return not self.begun and step == self.order.step

    def state(self, state: State, structure: bytes, now: float) -> None:
        """Copies this donor's part of the state."""
        self.begun, self.began = True, now
        if self.part == 0:
            self._put(STRUCTURE, self.order.step, 0, len(structure), memoryview(structure))
        donors = len(self.order.donors)
        digests = memoryview(b"".join(state.digests(donors)))
        self._put(DIGESTS, self.order.step, self.part * len(digests), donors * len(digests), digests)
        low, high = cut(state.bytes, self.part, donors)
        self._put(TENSORS, self.order.step, low, state.bytes, memoryview(state.part(low, high)))
        self.state_bytes = self.kept

    def result(self, step: int, result: Tensor, where: Sequence[int], mark: int, now: float) -> str:
        """The result of a step that counts, `[numel]`, where the steps are then, as `Sampler.where` has it,
        and `mark_of` both. Returns why it cannot be given, or nothing."""
        if not self.begun or self.ending or step < self.next_step:
            return ""
        self.next_step = step + 1
        data, behind = as_bytes(result), _packed(where)
        total = len(data) + len(behind)
        low, high = cut(total, self.part, len(self.order.donors))
        body = bytes(data[low:high]) + behind[max(low - len(data), 0) : max(high - len(data), 0)]
        self._put(RESULT, step, low, total, memoryview(body), mark)
        self._first_result = self._first_result or now
        if self.kept <= _KEPT_STATES * self.state_bytes + _KEPT_BYTES:
            return ""
        has = self.acknowledged / max(now - self.began, 1e-9)
        steps = step - self.order.step
        needs = steps * (high - low) / max(now - self._first_result, 1e-9)
        return (
            f"it takes {has * 8e-6:.3g} Mbit/s of a donor, and a donor's part of the steps makes "
            f"{needs * 8e-6:.3g} Mbit/s: it would never be done"
        )

    def last(self) -> None:
        """It is let in: nothing comes behind what is kept for it."""
        self.ending = True

    @property
    def done(self) -> bool:
        """Whether all is acknowledged, and nothing more comes."""
        return self.ending and self.kept == 0

    def got(self, count: int) -> None:
        """So much more is acknowledged."""
        if not 0 <= count <= self._flying:
            raise DataError(f"a joiner acknowledges {count} bytes, and was sent {self._flying}")
        self._flying -= count
        self.kept -= count
        self.acknowledged += count

    def poll(self, counted: int, now: float) -> bytes | None:
        """The next chunk, if there is one and it may fly."""
        self._window.acknowledge(self.acknowledged, now)
        if not self._queue or self._flying >= self._window.bytes:
            return None
        what, step, offset, total, mark, body = self._queue.popleft()
        if len(body) > CHUNK_BYTES:
            self._queue.appendleft((what, step, offset + CHUNK_BYTES, total, mark, body[CHUNK_BYTES:]))
            body = body[:CHUNK_BYTES]
        self._flying += len(body)
        self._window.sent(self.acknowledged + self._flying, self.acknowledged, now)
        is_slow = self.acknowledged < _PACKED_BELOW * (now - self.began)
        attempt = self.order.attempt
        return Chunk(what, attempt, step, offset, total, counted, mark, body).encoded(pack=is_slow)

    def _put(self, what: int, step: int, offset: int, total: int, body: memoryview, mark: int = 0) -> None:
        if body:
            self._queue.append((what, step, offset, total, mark, body))
            self.kept += len(body)


class Differs(DataError):
    """What donors give is of several wholes."""


@dataclass
class _Whole:
    """Something that comes in parts: its bytes, what marks them, and how many of them are there."""

    data: bytearray
    mark: int
    came: int = 0


def _add(wholes: dict[int, _Whole], key: int, chunk: Chunk) -> bool:
    """Whether what has this key is complete with it."""
    whole = wholes.get(key)
    if whole is None:
        whole = wholes[key] = _Whole(bytearray(chunk.total), chunk.mark)
    if chunk.mark != whole.mark:
        raise Differs(f"donors give parts of several results of step {chunk.step}: one of them was lost")
    if chunk.total != len(whole.data):
        raise DataError(f"donors differ: one gives {chunk.total} bytes of what has {len(whole.data)}")
    whole.data[chunk.offset : chunk.offset + len(chunk.body)] = chunk.body
    whole.came += len(chunk.body)
    return whole.came == chunk.total


class Copy:
    """What a joiner has got of one attempt. See the module.

    Args:
      attempt: its number.
      own_bytes: of what it has itself before: bounds the state.
      sources: whom it needs: the member that it has asked, and the donors when they are known.

    Attributes:
      donors: in the order of their parts; none: they are not known yet.
      asked: when; None: not yet.
    """

    def __init__(self, attempt: int, own_bytes: int, sources: set[str]) -> None:
        self.sources, self.donors = sources, list[str]()
        self.asked: float | None = None
        self.attempt, self._most = attempt, most_state_bytes(own_bytes)
        self._step: int | None = None  # it has the state, and its loop is there
        self._state: dict[int, _Whole] = {}
        self._whole: set[int] = set()
        self._results: dict[int, _Whole] = {}
        self._ready: set[int] = set()
        self._counted = 0
        self._withheld: deque[tuple[str, int, int]] = deque()

    def take(self, donor: str, chunk: Chunk) -> list[tuple[str, int]]:
        """A chunk has come. Returns what is acknowledged: to whom, how many bytes.

        Raises: DataError if it does not fit the others: `Differs`, if those who give are of several minds.
        """
        self._counted = max(self._counted, chunk.counted)
        if chunk.total > self._most:
            raise DataError(f"a donor gives {chunk.total} bytes, and this process takes {self._most} at most")
        if chunk.what != RESULT:
            if _add(self._state, chunk.what, chunk):
                self._whole.add(chunk.what)
            return [(donor, len(chunk.body))]
        if _add(self._results, chunk.step, chunk):
            self._ready.add(chunk.step)
        self._withheld.append((donor, chunk.step, len(chunk.body)))
        return [] if self._step is None else self.near(self._step)

    def near(self, step: int) -> list[tuple[str, int]]:
        """The loop is at this step. Returns what may be acknowledged now."""
        self._step = step
        due = [one for one in self._withheld if one[1] <= step + _AHEAD]
        self._withheld = deque(one for one in self._withheld if one[1] > step + _AHEAD)
        return [(donor, count) for donor, _, count in due]

    def state(self) -> State | None:
        """When it is complete, once.

        Raises: DataError if a donor has given other bytes than most have; it names that one.
        """
        if not self.donors or self._whole != {STRUCTURE, TENSORS, DIGESTS}:
            return None
        tensors = self._state[TENSORS].data
        self._check(tensors, self._state[DIGESTS].data)
        found = State.assembled(self._state[STRUCTURE].data, tensors)
        self._state, self._whole = {}, set()
        return found

    def _check(self, tensors: bytearray, digests: bytearray) -> None:
        """Each part is what most donors have there."""
        donors, ends = len(self.donors), range(0, len(digests) + 1, DIGEST_BYTES)
        told = [bytes(digests[low:high]) for low, high in pairwise(ends)]
        if len(told) != donors**2:
            raise DataError(f"{donors} donors give {len(told)} digests, and each has one of each part")
        view = memoryview(tensors)
        for part, donor in enumerate(self.donors):
            low, high = cut(len(tensors), part, donors)
            most, count = Counter(told[part::donors]).most_common(1)[0]
            if 2 * count <= donors:
                raise DataError(f"members differ in what they keep, and no part has most of {donors} for it")
            if digest_of(view[low:high]) != most:
                raise DataError(
                    f"member {donor[:8]} gives a part of the state that is not what most members have there. "
                    "Start that one again: it joins with the state of the others"
                )

    def has(self, step: int) -> bool:
        """The result of this step is there."""
        return step in self._ready

    def result(self, step: int, like: Tensor) -> tuple[Tensor, Sequence[int]]:
        """The result of a step that is there, in the shape and type of `like`, and where the steps are then.
        Raises DataError if the result has others."""
        self._ready.remove(step)
        data = self._results.pop(step).data
        behind = len(data) - like.numel() * like.element_size()
        if behind < 0 or behind % 8:
            raise DataError(
                f"the result of step {step} has {len(data)} bytes, which do not fit the result here"
            )
        where = struct.unpack(f"<{behind // 8}Q", data[len(data) - behind :])
        del data[len(data) - behind :]
        return from_bytes(data, like.dtype, like.shape), where

    def is_near(self, step: int) -> bool:
        """Others are so few steps further that it can ask to be let in."""
        return self._counted - step <= _NEAR_STEPS
