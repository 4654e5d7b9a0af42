"""Members whose lives end and begin again, as the launcher sees them: by what they write into a folder.

A life writes each step down (`Written`); the launcher reads it (`Watched`), and says which step is the last.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple, Self

from tweed.elastic import Control, Elastic, join, start
from tweed.exchange.store import join_place, open_store, reach_store, split_place
from tweed.files import write_atomic
from tweed.testbed import Failed, RankFailed, Ranks
from tweed.testbed.fault_injector import FaultInjector
from tweed.testbed.faults import Fault
from tweed.testbed.restarts import pid

_LOOK_S, _PATIENCE_S = 0.02, 120.0
#: Who has ended no step for so long is away, or stopped.
_LATELY_S = 0.5
_LINES_BYTES = 400  # there are two whole lines in it at least


class Step(NamedTuple):
    """One that counts at a member: seconds of the system's monotonic clock."""

    number: int
    begin: float
    end: float
    members: int


def control(life: int, rank: int, founders: int, most: int, folder: Path, **options: Any) -> Control:
    """This life among the members: the first ones found, the others join. `options` are of `Elastic`."""
    elastic, store = Elastic(1, most, **options), folder / "store"
    if life == 0 and rank < founders:
        if rank == 0:
            place = open_store(elastic.host)
            write_atomic(store, join_place(elastic.host, place.port))
        else:
            place = reach_store(*split_place(_text(store)), _PATIENCE_S)
        made = start(place, rank, founders, elastic)
    else:
        others = [path for path in folder.glob("address-*") if path.name != f"address-{rank}"]
        made = join(",".join(path.read_text() for path in others), elastic)
    write_atomic(folder / f"address-{rank}", made.address)
    return made


def _text(path: Path) -> str:
    """The text of a file, once it is there."""
    while not path.exists():
        time.sleep(_LOOK_S)
    return path.read_text()


class Written:
    """Where a life writes its steps. A context manager."""

    def __init__(self, folder: Path, rank: int, life: int) -> None:
        self._last = folder / "last"
        self._file = (folder / f"steps-{rank}-{life}").open("w", buffering=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def step(self, number: int, begin: float, members: int) -> None:
        """It counts here, and has just ended."""
        print(json.dumps([number, begin, time.monotonic(), members]), file=self._file)

    def over(self, counted: int) -> bool:
        """The last step counts. All read the same number, which lies ahead when it is written."""
        return self._last.exists() and counted >= int(self._last.read_text())


class Watched:
    """What the ranks have written so far.

    Args:
      members: ranks below it are members; None: all are.
    """

    def __init__(self, ranks: Ranks, folder: Path, members: int | None = None) -> None:
        self.ranks, self.folder = ranks, folder
        self._members = ranks.size if members is None else members

    def steps(self, rank: int) -> list[Step]:
        """The steps of all lives of a rank."""
        lines = [line for path in self._lives(rank) for line in path.read_text().splitlines(keepends=True)]
        return [Step(*json.loads(line)) for line in lines if line.endswith("\n")]

    def last(self, rank: int) -> Step | None:
        """The last step of all lives of a rank. Cost: the end of one file, where `steps` reads all of
        them."""
        for path in reversed(self._lives(rank)):
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _LINES_BYTES))
                lines = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
            if lines:
                return Step(*json.loads(lines[-1]))
        return None

    def before(self, ranks: Collection[int], moment: float) -> Step:
        """The last step that one of these had counted then."""
        ended = (step for rank in ranks for step in self.steps(rank) if step.end <= moment)
        return max(ended, key=lambda step: step.end)

    def counted(self) -> int:
        """Steps that count at any of them."""
        return max((step.number for rank in range(self._members) if (step := self.last(rank))), default=0)

    def _lives(self, rank: int) -> list[Path]:
        lives = self.folder.glob(f"steps-{rank}-*")
        return sorted(lives, key=lambda path: int(path.name.rpartition("-")[2]))

    def pid(self, rank: int) -> int:
        """The process id of the rank's life."""
        return pid(self.folder, rank)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Until it holds. Raises RankFailed, or TimeoutError after two minutes."""
        until = time.monotonic() + _PATIENCE_S
        while not condition():
            if failures := [event for event in self.ranks.poll(_LOOK_S) if isinstance(event, Failed)]:
                raise RankFailed(self.ranks.blame(failures))
            if time.monotonic() > until:
                raise TimeoutError("members have not come together within two minutes")

    def settled(self, members: int, since: float, count: int = 3) -> None:
        """Waits until all ranks have made so many steps of so many members since then."""

        def settled() -> bool:
            found = (self.steps(rank)[-count:] for rank in range(members))
            return all(
                len(steps) == count and all(step.members == members and step.begin > since for step in steps)
                for steps in found
            )

        self.wait(settled)

    def counted_without(self, lost: Collection[int], members: int, since: float) -> Step:
        """The first step without the lost that all others have counted after `since`, at who counted last."""
        ends: list[Step] = []

        def counted() -> bool:
            found = [
                self._first(rank, members - len(lost), since) for rank in range(members) if rank not in lost
            ]
            if all(found):
                ends.append(max((step for step in found if step), key=lambda step: step.end))
            return bool(ends)

        self.wait(counted)
        return ends[0]

    def _first(self, rank: int, members: int, since: float) -> Step | None:
        steps = self.steps(rank)
        return next((step for step in steps if step.end > since and step.members <= members), None)

    def end(self, ahead: int = 5) -> list[Any]:
        """Lets all end so many steps later. Returns what each rank returns."""
        write_atomic(self.folder / "last", str(self.counted() + ahead))
        return self.ranks.join(_PATIENCE_S)


def strike(watched: Watched, injector: FaultInjector, members: int, away: float) -> None:
    """Lets all faults befall members; each waits until those whom it befalls are in, and as many others that
    at most this share of the members is away then. Who was struck is in again when it has ended a step.
    Returns when all are in again, and have made some steps together."""
    most, struck_s = max(1, int(away * members)), dict.fromkeys(range(members), 0.0)

    def alive() -> set[int]:
        now = time.monotonic()
        # Who follows the others until it is let in has steps of no members.
        steps = {rank: step for rank in range(members) if (step := watched.last(rank))}
        last = {rank: step.end for rank, step in steps.items() if step.members}
        return {rank for rank, end in last.items() if end > max(now - _LATELY_S, struck_s[rank])}

    def ready(fault: Fault) -> bool:
        found = alive()
        gone = members - len(found) + len(fault.members) * (fault.kind in ("kill", "stop"))
        return found.issuperset(fault.members) and gone <= max(most, len(fault.members))

    def turned() -> bool:
        fault = injector.turn(watched.counted(), ready)
        if fault is not None:
            struck_s.update(dict.fromkeys(fault.members, time.monotonic()))
        return fault is not None or injector.done

    with injector:
        while not injector.done:
            watched.wait(turned)
    watched.settled(members, time.monotonic())
