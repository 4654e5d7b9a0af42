"""Kills ranks by the hundred, and looks at what is left in those that live on.

    python -m tests.faults.soak                    1000 kills, half of them over shared memory, half over TCP
    python -m tests.faults.soak --kills 50 --transport tcp --seed 7

Four ranks in two groups sum without a pause. One is killed at a moment that the seed decides; the others
must hear of it as PeerLost, and make both groups anew in the same process, with a new process in its place.
One seat is never killed, and tells what its process holds after the first ten kills and after the last.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from tests.faults.ring import Outcome, caught
from tweed.forkserver.server import environment
from tweed.testbed import Failed, Ranks, Said, say

SEATS = 4
NUMEL = (4, 1000, 100_000)
MOST_S = 0.25  # between the moment at which all have met, and a kill
PATIENCE_S = 30.0
ENVIRONMENT = {"shm": {"TWEED_TRANSPORT": "auto"}, "tcp": {"TWEED_TRANSPORT": "tcp"}}


class Held(NamedTuple):
    """What a process holds while it is in no group: bytes of memory and addresses; descriptors, threads."""

    resident: int
    mapped: int
    descriptors: int
    threads: int

    def __str__(self) -> str:
        memory = f"{self.resident / 2**20:.1f} MiB resident, {self.mapped / 2**20:.1f} MiB mapped"
        return f"{memory}, {self.descriptors} descriptors, {self.threads} threads"


class Survived(NamedTuple):
    """What a survivor says of one kill."""

    outcome: Outcome
    sums: int
    held: Held


def held() -> Held:
    """Of this process, without what nobody holds and the C library keeps for later."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = [int(word) * os.sysconf("SC_PAGE_SIZE") for word in Path("/proc/self/statm").read_text().split()]
    return Held(pages[1], pages[0], *(len(os.listdir(f"/proc/self/{what}")) for what in ("fd", "task")))


def sums_for_ever(seat: int, meeting: dist.Store, done: list[int]) -> None:
    """In two groups at once. Says when it has met the others in the first. `done` counts what was checked."""
    timeout = timedelta(seconds=2 * PATIENCE_S)
    dist.init_process_group("tweed", store=meeting, rank=seat, world_size=SEATS, timeout=timeout)
    say("met")
    groups = [None, dist.new_group(timeout=timeout)]
    while True:
        factor, numel = len(done) % 97 + 1.0, NUMEL[len(done) // 2 % len(NUMEL)]
        values = [torch.full((numel,), factor * (seat + 1)) for _ in groups]
        works = [dist.all_reduce(v, group=g, async_op=True) for v, g in zip(values, groups, strict=True)]
        for work, value in zip(works, values, strict=True):
            work.wait()
            assert (value == factor * sum(range(SEATS + 1))).all(), f"wrong sum {value.unique().tolist()[:8]}"
            done.append(numel)


def lives(_rank: int, _size: int, seat: int, port: int, turn: int) -> None:
    """One process: sums until another one is killed, says so, and begins anew."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    hook = sys.excepthook
    while True:
        done: list[int] = []
        meeting = dist.PrefixStore(f"turn {turn}", store)
        outcome = caught(lambda meeting=meeting, done=done: sums_for_ever(seat, meeting, done))
        if dist.is_initialized():
            dist.destroy_process_group()
        sys.excepthook = hook  # torch lays one more around it at each start, for ever
        say(Survived(outcome, len(done), held()))
        turn += 1


@dataclass
class Soak:
    """A run, and what came of it so far.

    Args:
      transport: "shm" or "tcp".
      seed: decides who is killed, and when.
    """

    transport: str
    seed: int
    kills: int = 0
    sums: int = 0
    after_s: list[float] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    seats: dict[int, Ranks] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.witness = self.chance.randrange(SEATS)
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def start(self, seat: int) -> None:
        """Puts a new process there."""
        with environment(ENVIRONMENT[self.transport]):
            self.seats[seat] = Ranks(lives, 1, seat, self.store.port, self.kills)

    def kill(self) -> None:
        """One of them, once all have met, and hears from the others."""
        for seat in self.seats:
            assert self.hear(seat) == "met"
        victim = self.chance.choice([seat for seat in self.seats if seat != self.witness])
        time.sleep(self.chance.uniform(0, MOST_S))
        killed = time.monotonic()
        self.seats[victim].kill(0)
        self.kills += 1
        for seat in self.seats:
            if seat != victim:
                self.count(seat, killed)
        self.seats[victim].stop()
        self.start(victim)

    def count(self, seat: int, killed: float) -> None:
        """What a survivor says."""
        survived = self.hear(seat)
        assert isinstance(survived, Survived), survived
        assert survived.outcome.kind == "PeerLost", f"{self} seat {seat}: {survived.outcome}"
        self.sums += survived.sums
        self.after_s.append(survived.outcome.when - killed)
        if seat == self.witness:
            self.held.append(survived.held)

    def hear(self, seat: int) -> object:
        """The next thing that the process there says."""
        events = self.seats[seat].poll(PATIENCE_S)
        if not events:
            for ranks in self.seats.values():
                ranks.kill(0, signal.SIGUSR1)  # prints the stacks
        assert events, f"{self}: seat {seat} says nothing"
        (event,) = events
        assert isinstance(event, Said), f"{self}: {event.text if isinstance(event, Failed) else event}"
        return event.value

    def __str__(self) -> str:
        return f"{self.transport}, seed {self.seed}, after {self.kills} kills"


@contextmanager
def soak(transport: str, seed: int) -> Iterator[Soak]:
    """Ranks that sum, to be killed. None is left at the end."""
    run = Soak(transport, seed)
    try:
        for seat in range(SEATS):
            run.start(seat)
        yield run
    finally:
        for ranks in run.seats.values():
            ranks.stop()


def report(run: Soak, took_s: float) -> None:
    """Prints the figures."""
    after = sorted(run.after_s)
    print(f"{run}: {run.kills / took_s * 60:.0f} kills a minute, {run.sums} sums checked")
    print(
        f"  PeerLost at {len(after)} survivors: median {statistics.median(after) * 1e3:.0f} ms, "
        f"99 % {after[int(len(after) * 0.99)] * 1e3:.0f} ms, latest {after[-1] * 1e3:.0f} ms after the kill"
    )
    early = min(10, run.kills)
    print(f"  after {early:4} kills: {run.held[early - 1]}")
    print(f"  after {run.kills:4} kills: {run.held[-1]}", flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak")
    parser.add_argument("--kills", type=int, default=1000, help="in all")
    parser.add_argument("--transport", choices=ENVIRONMENT, nargs="+", default=list(ENVIRONMENT))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    given = parser.parse_args()
    # else the C library maps 64 MiB for each thread that asks while others do, which would look like growth
    os.environ["MALLOC_ARENA_MAX"] = "1"  # before the fork server starts, from which ranks come
    print(f"seed {given.seed}", flush=True)
    for transport in given.transport:
        with soak(transport, given.seed) as run:
            began = time.monotonic()
            while run.kills < given.kills // len(given.transport):
                run.kill()
                if run.kills % 50 == 0:
                    report(run, time.monotonic() - began)
            report(run, time.monotonic() - began)


if __name__ == "__main__":
    main()
