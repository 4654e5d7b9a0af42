"""What the tests of faults have in common: ranks that report how a call ended, and when."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from tweed.testbed import Ended, Failed, Ranks, Said, say


class Outcome(NamedTuple):
    """Class and text of the error, empty if there was none, and `time.monotonic()` at the end."""

    kind: str
    text: str
    when: float

    def must_be(self, kind: str, *words: str) -> None:
        """Asserts class and words."""
        assert self.kind == kind, self
        for word in words:
            assert word in self.text


def caught(action: Callable[[], object], repeat: bool = False) -> Outcome:
    """What `action` raises, once or in the end. Pickled errors of other processes would lose their class."""
    try:
        action()
        while repeat:
            action()
    except Exception as error:  # noqa: BLE001 the test looks at the class
        return Outcome(type(error).__name__, str(error), time.monotonic())
    return Outcome("", "", time.monotonic())


def reduces_until_the_end(rank: int, size: int, group: Any = None, numel: int = 100_000) -> Outcome:
    """Nearly all of its time goes by within an all-reduce, so that is where a fault finds it."""
    tensor = torch.ones(numel)
    dist.all_reduce(tensor, group=group)
    say("under way")
    return caught(lambda: dist.all_reduce(tensor.fill_(1.0), group=group), repeat=True)


def store() -> Any:
    """The store of the default group."""
    return dist.distributed_c10d._get_default_store()


def part(rank: int, size: int, meeting: Any = None) -> None:
    """All ranks call it last: the store goes with rank 0, so that one waits for the others."""
    meeting = meeting or store()
    if rank != 0:
        meeting.set(f"{rank} needs the store no more", "")
        return
    for other in range(1, size):
        meeting.get(f"{other} needs the store no more")


def hear_all(ranks: Ranks) -> None:
    """Returns once every rank has said something."""
    waiting = set(ranks.running())
    while waiting:
        events = ranks.poll(30)
        assert events, f"ranks {sorted(waiting)} say nothing"
        assert all(isinstance(event, Said) for event in events), events
        waiting -= {event.rank for event in events}


def logs_here() -> None:
    """What tweed logs in this rank, the launcher hears."""
    handler = logging.Handler()
    handler.emit = lambda record: say(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("tweed").addHandler(handler)


def hear(ranks: Ranks, words: dict[int, str]) -> dict[int, Any]:
    """Returns once each of these ranks has said something that begins so: what other ranks that come to their
    end meanwhile return."""
    found: dict[int, Any] = {}
    while words:
        events = ranks.poll(30)
        assert events, f"not heard: {words}"
        assert not [one for one in events if not isinstance(one, Said) and one.rank in words], events
        said = [(event.rank, str(event.value)) for event in events if isinstance(event, Said)]
        heard = {rank for rank, text in said if rank in words and text.startswith(words[rank])}
        words = {rank: word for rank, word in words.items() if rank not in heard}
        found |= {event.rank: event.value for event in events if isinstance(event, Ended)}
    return found


def endings(ranks: Ranks, number: int) -> dict[int, Any]:
    """What the first `number` ranks that come to their end return."""
    found: dict[int, Any] = {}
    while len(found) < number:
        events = ranks.poll(30)
        assert events, f"no end of ranks {ranks.running()}"
        assert not [event for event in events if isinstance(event, Failed) and event.error], events
        found |= {event.rank: event.value for event in events if isinstance(event, Ended)}
    return found
