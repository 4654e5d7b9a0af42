"""What a member does for others: it adds up what they send, and hands the newest model to them.

The machines are `Aggregator` and `ModelSource`. This says who may send what, and fetch what: those alone
whom the hub has named, for the task, or the version, that it has named, and so many bytes as the hub was
told. Who comes before the hub's word waits; the others hold a few KB at most. Who sends what was not
announced is cut off: its contribution is void, and the hub hears of it from the member that is cut off, or
when time is over.

Nothing here has a clock; `now` is in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from tweed.errors import DataError
from tweed.hub.keyed.ways import Links
from tweed.hub.machine.aggregator import Aggregator
from tweed.hub.machine.model_source import HandOver, ModelSource
from tweed.hub.wire.bodies import Part
from tweed.hub.wire.framing import SMALL_BYTES, framed, split
from tweed.hub.wire.head import HEAD, from_worker
from tweed.hub.wire.messages import (
    CancelGroup,
    Gather,
    Grant,
    Handed,
    ModelGrant,
    ModelRequest,
    Offer,
    Payload,
    Sum,
)


@dataclass(slots=True)
class _Caller:
    """A member that has a link to this one.

    Attributes:
      offered: the task and the bytes that it wants to send, and has not been let.
      sending: what it was let.
      wanted: a version that it wants, and may not fetch yet.
    """

    key: str
    offered: tuple[int, int] | None = None
    sending: Part | None = None
    wanted: int | None = None


@dataclass(slots=True)
class Service:
    """See above.

    Args:
      links: to callers.
      own: this member's key: what it sends to itself crosses no link.
      decode: of a worker, a payload and the number of its task, what that stands for.
    """

    links: Links
    own: str
    decode: Callable[[int, Tensor, int], Any]
    _aggregator: Aggregator = field(init=False)
    _model_source: ModelSource = field(default_factory=ModelSource)
    _callers: dict[int, _Caller] = field(default_factory=dict)  # by link
    _parts: dict[tuple[str, int], Part] = field(default_factory=dict)  # by key and task
    _groups: dict[int, list[Part]] = field(default_factory=dict)
    _granted_models: dict[str, tuple[int, int]] = field(default_factory=dict)  # by key: member, and version
    _out: list[Sum] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._aggregator = Aggregator(self._value)

    # What the hub says

    def gather(self, message: Gather, parts: Sequence[Part], now: float) -> None:
        """Begins a group, whose `parts` this process adds up."""
        self._groups[message.group] = list(parts)
        self._parts.update({(part.key, part.number): part for part in parts})
        tasks = tuple(part.task for part in parts)
        norms = tuple(part.norm for part in parts)
        whole = Gather(message.group, tasks, message.within_s, message.copy_first, norms)
        self._aggregator.handle(whole, now)
        for link, caller in list(self._callers.items()):
            self._let_send(link, caller)

    def cancel_group(self, message: CancelGroup, now: float) -> None:
        """A group has ended."""
        self._forget(message.group)
        self._aggregator.handle(message, now)

    def grant_model(self, message: ModelGrant, key: str) -> None:
        """The member with this key may fetch a version."""
        self._granted_models[key] = message.member, message.version
        for caller in self._callers.values():
            if caller.key == key:
                self._ask_model_source(caller)
        self._hand_over()

    def holds(self, version: int, model: Tensor) -> None:
        """This model has come, as it crosses links."""
        self._model_source.holds(version, model)
        self._hand_over()

    def unlinked(self) -> None:
        """The link to the hub has broken: all begins anew."""
        for link in list(self._callers):
            self._cut(link, "the aggregator has lost its hub")
        self._aggregator.unlinked()
        self._model_source = ModelSource()  # at another hub the same version may be another model
        self._parts.clear()
        self._groups.clear()
        self._granted_models.clear()

    # What members say

    def joined(self, link: int, key: str) -> None:
        """A member has called."""
        self._callers[link] = _Caller(key)

    def left(self, link: int) -> None:
        """Its link has ended."""
        self._callers.pop(link, None)

    def heard(self, link: int, data: bytearray, now: float) -> None:
        """A message has come; who says what cannot be is cut off."""
        if (caller := self._callers.get(link)) is None:
            self.links.cut(link, "it is not known here any more")
            return
        try:
            head, body = split(data)
            self._take(link, caller, from_worker(head, body), now)
        except DataError as error:
            self._cut(link, str(error))

    def sent_by_itself(self, message: Payload, now: float) -> bool:
        """This member's own payload. Whether there is a group that waits for it."""
        part = self._parts.pop((self.own, message.number), None)
        if part is not None:
            self._aggregator.arrived(part.member, message, now)
            self._settle()
        return part is not None

    def passed(self, now: float) -> None:
        """Finishes the sums that are due now that time has passed."""
        self._aggregator.passed(now)
        self._settle()

    def deadline(self) -> float:
        """When `passed` is to be called next; infinite: never."""
        return self._aggregator.deadline()

    def poll(self) -> Sum | None:
        """What is to go to the hub next; None: nothing."""
        return self._out.pop(0) if self._out else None

    def _take(self, link: int, caller: _Caller, message: Any, now: float) -> None:
        if isinstance(message, Offer):
            caller.offered = message.number, message.numbytes
            self._let_send(link, caller)
        elif isinstance(message, ModelRequest):
            caller.wanted = message.version
            self._ask_model_source(caller)
            self._hand_over()
        elif isinstance(message, Payload):
            self._arrived(link, caller, message, now)
        else:
            raise DataError(f"an aggregator takes no {type(message).__name__}")

    def _let_send(self, link: int, caller: _Caller) -> None:
        """What the hub has named as well may come."""
        if caller.offered is None or (part := self._parts.get((caller.key, caller.offered[0]))) is None:
            return
        if caller.offered[1] != part.numbytes:
            self._cut(link, f"it told the hub of {part.numbytes} bytes, and has {caller.offered[1]}")
            return
        caller.offered, caller.sending = None, part
        self.links.allow(link, HEAD.size + max(SMALL_BYTES, part.numbytes))
        self.links.send(link, framed(Grant(part.number)))

    def _arrived(self, link: int, caller: _Caller, message: Payload, now: float) -> None:
        part, caller.sending = caller.sending, None
        if part is None or (message.number, message.value.numel()) != (part.number, part.numbytes):
            raise DataError("it has sent what was not announced")
        self.links.allow(link, HEAD.size + SMALL_BYTES)
        if self._parts.pop((caller.key, message.number), None) is not None:  # the group is still there
            self._aggregator.arrived(part.member, message, now)
            self._settle()

    def _value(self, member: int, payload: Payload) -> Any:
        worker = next(part.worker for part in self._named(member, payload.number))
        return self.decode(worker, payload.value, payload.number)

    def _named(self, member: int, number: int) -> Iterable[Part]:
        return (part for parts in self._groups.values() for part in parts if part.task == (member, number))

    def _settle(self) -> None:
        """Takes sums that are ready."""
        while (found := self._aggregator.poll()) is not None:
            self._forget(found.group)
            self._out.append(found)

    def _forget(self, group: int) -> None:
        for part in self._groups.pop(group, []):
            if self._parts.get((part.key, part.number)) is part:
                del self._parts[part.key, part.number]

    def _ask_model_source(self, caller: _Caller) -> None:
        member, version = self._granted_models.get(caller.key, (-1, -1))
        if caller.wanted is not None and caller.wanted == version:
            caller.wanted = None
            self._model_source.asked(member, version)

    def _hand_over(self) -> None:
        while (given := self._model_source.poll()) is not None:
            self._send_model(given)

    def _send_model(self, given: HandOver) -> None:
        keys = {key for key, (member, _) in self._granted_models.items() if member == given.member}
        for link, caller in self._callers.items():
            if caller.key in keys:
                body = given.model.numpy().tobytes() if given.there else b""
                self.links.send(link, framed(Handed(given.version, given.there), len(body)), body)

    def _cut(self, link: int, why: str) -> None:
        self._callers.pop(link, None)
        self.links.cut(link, why)
