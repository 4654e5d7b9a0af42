"""Ranks that stay: they are started once and run one program after another.

The launcher puts programs into a store, as text, and each rank says what came of them. A program that does
not end in time, or whose ranks die, is a failure; ranks are started anew for the next one.
"""

from __future__ import annotations

import logging
import time
import traceback
import warnings
from dataclasses import dataclass
from typing import Any, Self

import torch.distributed as dist

from tests.loops.attached import Outcome
from tests.loops.interpreter import run_program
from tests.loops.kinds import MEMBERS, strategy_of
from tests.loops.members import run_member
from tests.loops.program import Fewer, Program, parse
from tweed.testbed import Ended, Failed, Ranks, Said, preload

MOST_RANKS = 4
BACKENDS = ("gloo", "tweed")
DEADLINE_S = 10.0
_END = "the end"

preload("tests.loops.interpreter", "tweed.recipes.named", "hypothesis")


@dataclass(frozen=True, slots=True)
class Broken:
    """A program hung, or a rank raised what is no error of tweed, or died. `text` says which."""

    text: str


class StayingRanks:
    """Ranks for programs of any size and backend. A context manager.

    Args:
      fault: name of a fault that ranks put into tweed, see `faults`; empty: none.
      deadline_s: for each program.
      grouped: they are in process groups; for members that come and go there are others, in none.
    """

    def __init__(self, fault: str = "", deadline_s: float = DEADLINE_S, *, grouped: bool = True) -> None:
        self._fault, self._deadline_s = fault, deadline_s
        self._grouped = grouped
        self._members: StayingRanks | None = None
        self._store: Any = None
        self._ranks: Ranks | None = None
        self._number = 0
        self.starts = 0

    def send(self, program: Program) -> None:
        """Lets the ranks begin with it."""
        if (others := self._for_members(program)) is not None:
            others.send(program)
            return
        if self._ranks is None:
            self._start()
        self._store.set(str(self._number), str(program))

    def receive(self, program: Program) -> list[Outcome] | Broken:
        """What came of the program that was sent last, by rank."""
        if (others := self._for_members(program)) is not None:
            return others.receive(program)
        assert self._ranks is not None
        found: dict[int, Any] = {}
        end = time.monotonic() + self._deadline_s
        while len(found) < program.ranks:
            left = end - time.monotonic()
            events = self._ranks.poll(max(0.0, left))
            for event in events:
                match event:
                    case Said(rank, value):
                        found[rank] = value
                    case Failed(_, text) | Ended(_, text):
                        return self._broken(f"a rank is no longer there: {text}")
            if not events:
                waited = sorted(set(range(program.ranks)) - set(found))
                return self._broken(f"ranks {waited} did not end within {self._deadline_s} s")
        self._number += 1
        if errors := [text for _, text in found.values() if text]:
            return self._broken(errors[0])
        return [found[rank][0] for rank in range(program.ranks)]

    def run(self, program: Program) -> list[Outcome] | Broken:
        """Both."""
        self.send(program)
        return self.receive(program)

    def _for_members(self, program: Program) -> StayingRanks | None:
        if program.strategy != MEMBERS or not self._grouped:
            return None
        self._members = self._members or StayingRanks(self._fault, self._deadline_s, grouped=False)
        return self._members

    def _broken(self, text: str) -> Broken:
        self.stop()
        return Broken(text)

    def _start(self) -> None:
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._number = 0
        self.starts += 1
        backend = "gloo" if self._grouped else None
        self._ranks = Ranks(_stays, MOST_RANKS, self._store.port, self._fault, backend=backend)

    def stop(self) -> None:
        """Ends the ranks."""
        if self._ranks is not None:
            self._ranks.stop()
        self._ranks = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._members is not None:
            self._members.stop()


def _stays(rank: int, size: int, port: int, fault: str) -> None:
    """Runs programs until the launcher ends this process."""
    from tweed.testbed import say

    warnings.filterwarnings("ignore")  # of loops that are odd on purpose
    logging.getLogger("tweed").setLevel(logging.ERROR)
    if fault:
        from tests.loops.faults import FAULTS

        FAULTS[fault].put()
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    groups: dict[str, dict[int, Any]] = {}
    if dist.is_initialized():
        groups = {
            backend: {count: dist.new_group(range(count), backend=backend) for count in range(1, size + 1)}
            for backend in BACKENDS
        }
    number = 0
    while True:
        program = parse(_next(store, number))
        if rank < program.ranks:
            place = groups.get(program.backend) or dist.PrefixStore(f"members {number}", store)
            say(_outcome(program, rank, place))
        number += 1


def _next(store: Any, number: int) -> str:
    """The text of the next program, whenever it comes."""
    while True:
        try:
            return store.get(str(number)).decode()
        except dist.DistStoreError:  # nothing came for long
            continue


def _outcome(program: Program, rank: int, groups: Any) -> tuple[Outcome | None, str]:
    try:
        if program.strategy == MEMBERS:
            return run_member(program, rank, groups), ""
        outcome = run_program(program, rank, groups)
        if outcome.refused and strategy_of(program.strategy).hub is None:  # a hub is not refused anything
            there = program.ranks - program.has(Fewer)
            dist.barrier(groups[there])  # the group is as good as before
        return outcome, ""
    except Exception:  # noqa: BLE001 what a program raises is what is looked for
        return None, f"rank {rank} raised:\n{traceback.format_exc()}"
