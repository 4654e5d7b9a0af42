"""What a process does within a step, while somebody records it: when it encodes, when it waits and for whom,
and when collectives are under way, be it behind computing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

What = Literal["encode", "wait", "under way"]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time, in seconds of the clock of whoever notes it.

    Attributes:
      what: "encode" is a codec's work, decoding too; "wait": training stood still for the network;
        "under way": a collective, from its begin to its end.
      last: of a wait the rank that was last heard of, and the kind of the link to it; None if unknown.
    """

    what: What
    began_s: float
    ended_s: float
    last: tuple[int, str] | None = None


@dataclass(slots=True)
class Recording:
    """What was noted since it began. Ends of collectives are noted by the threads of a backend.

    Attributes:
      spans: in the order of their ends.
    """

    spans: list[Span] = field(default_factory=list)
    _open: dict[object, float] = field(default_factory=dict)

    def follow(self, work: Work, clock: Callable[[], float]) -> None:
        """Notes that a collective begins, and when it ends."""
        key, began_s = object(), clock()

        def ended(_: object) -> None:
            self._open.pop(key, None)
            self.spans.append(Span("under way", began_s, clock()))

        self._open[key] = began_s
        work.get_future().add_done_callback(ended)

    def take(self, now_s: float) -> list[Span]:
        """What has ended since this was last called, and what is under way, as if it ended now."""
        count, going_on = len(self.spans), list(self._open.values())
        found = self.spans[:count]
        del self.spans[:count]
        return [*found, *(Span("under way", began_s, now_s) for began_s in going_on)]


class Work(Protocol):
    """A collective that has begun, as torch has it."""

    def get_future(self) -> Any:
        """What can be told to call a function at its end."""


_recording: Recording | None = None


def record() -> Recording:
    """Begins to record, instead of whoever did before."""
    global _recording
    _recording = Recording()
    return _recording


def stop() -> None:
    """Nobody records any more."""
    global _recording
    _recording = None


def records() -> bool:
    """Whether somebody does, so that it is worth asking links."""
    return _recording is not None


def note(what: What, began_s: float, ended_s: float, last: tuple[int, str] | None = None) -> None:
    """Adds a span, if somebody records."""
    if _recording is not None:
        _recording.spans.append(Span(what, began_s, ended_s, last))


def follow(work: Work, clock: Callable[[], float]) -> None:
    """Adds the span of a collective that begins now, if somebody records."""
    if _recording is not None:
        _recording.follow(work, clock)


def last_heard(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> tuple[int, str] | None:
    """The rank that most operations heard of last between two readings of a group's links, and its link.

    Args:
      before, after: as `Source.stats`; empty: unknown.
    """
    grown = [
        (now["times_last"] - then["times_last"], now["lateness_s"] - then["lateness_s"], now)
        for then, now in zip(before, after, strict=False)
        if now["times_last"] > then["times_last"]
    ]
    if not grown:
        return None
    *_, link = max(grown, key=lambda one: one[:2])
    return link["rank"], link["link"]
