"""Kills live processes in the middle of broadcasts and sums of objects, and looks at what the others have.

    python -m tests.ray.faults --rounds 1000 --seed 7

Processes of this host, without Ray; three of five share no memory, so that what they get comes in blocks. In
each round one that watches a collective kills another by SIGKILL when it has 10, 50 or 90 % of it: the origin
of a broadcast, or a receiver; a source of a sum; the shard, which plans a broadcast or a sum and has no part
in it; the destination of a sum that others get; that and the sum's shard together. A new process takes the
place of each dead one and puts its object once more, under the same id. All must end, broadcasts be equal,
and each range of a sum be that of the ids which it names; a sum whose destination has died names none, but
its values show them. Of broadcasts no process receives more than a block twice. Of sums it may: what had
come ahead of a place of the tree that begins anew.

With its destination a sum may be gone: if that had all of it already and nobody else has, or if what knew of
the plan died as well. Then the others learn so by their deadline, and the sum is called for once more.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.ray.fleet import PATIENCE_S, Fleet
from tweed.errors import TweedError
from tweed.ray.objects import Objects, Reduced, Ref, process

SIZE = 5
NUMEL = 1 << 20
SHARES = (0.1, 0.5, 0.9)
#: So many share no memory, with nobody.
WIRE_ONLY = 3
KINDS = (
    "broadcast",
    "shard of a broadcast",
    "sum",
    "all-reduce",
    "shard of a sum",
    "destination",
    "destination and shard",
)
#: What is read of a link at a time.
RECORD = 2 << 16
#: So long those wait whose sum may be gone.
SOON_S = 6.0


def value_of(rank: int) -> float:
    """What each element of a rank's source is: sums say which ranks are in."""
    return float(2**rank)


def put(objects: Objects, ref: Ref, value: float) -> None:
    """An object, whose elements differ."""
    objects.put(np.arange(NUMEL, dtype=np.float32) % 1000 * 64 + np.float32(value), ref)


def put_source(objects: Objects, ref: Ref, rank: int) -> None:
    """A source of a sum."""
    objects.put(np.full(NUMEL, value_of(rank), np.float32), ref)


def digest(array: Any) -> str:
    """Of all bytes."""
    return hashlib.blake2b(array, digest_size=8).hexdigest()


@dataclass(frozen=True)
class Seen:
    """What one has: a digest, or what is wrong; and of one that kills, whether that was in time."""

    found: str
    in_time: bool = False


def why(error: TweedError) -> Seen:
    """One that has nothing."""
    return Seen(f"{type(error).__name__}: {error}")


def watch(objects: Objects, ref: Ref, share: float, victims: Sequence[int]) -> bool:
    """Kills processes when so much of an object is here. Returns whether that was before all was."""
    for begin, some in objects.blocks(ref, timeout=PATIENCE_S / 2):
        if begin + len(some) >= share * NUMEL:
            for victim in victims:
                os.kill(victim, signal.SIGKILL)
            return begin + len(some) < NUMEL
    return False


def get(objects: Objects, ref: Ref, share: float = 1.0, victims: Sequence[int] = ()) -> Seen:
    """Gets a copy, and kills processes on the way."""
    try:
        in_time = bool(victims) and watch(objects, ref, share, victims)
        return Seen(digest(objects.get(ref, timeout=PATIENCE_S / 2).result()), in_time)
    except TweedError as error:
        return why(error)


def get_sum(
    objects: Objects, ref: Ref, count: int, mode: str, share: float = 0.0, victims: Sequence[int] = ()
) -> Seen:
    """Gets a sum whose destination dies, and kills processes on the way: its values show what is in it."""
    try:
        in_time = bool(victims) and watch(objects, ref, share, victims)
        array = objects.get(ref, timeout=SOON_S).result()
    except TweedError as error:
        return why(error)
    values = sorted({int(value) for value in array})
    counts = [value.bit_count() for value in values]
    is_right = counts == [count] if mode == "whole" else 1 <= min(counts) <= max(counts) <= count
    is_right = is_right and max(values) < value_of(SIZE)
    return Seen(digest(array) if is_right else f"wrong values of {count} sources: {values}", in_time)


def sum_until_killed(objects: Objects, target: Ref, refs: list[Ref], count: int, mode: str) -> None:
    """The destination, which nobody asks what came of it."""
    objects.reduce(refs, count, mode=mode, target=target)


def make_sum(
    objects: Objects,
    target: Ref,
    refs: list[Ref],
    count: int,
    mode: str,
    share: float = 1.0,
    victims: Sequence[int] = (),
) -> Seen:
    """Sums, kills processes on the way, and checks."""
    sums = objects.reduce(refs, count, mode=mode, target=target, timeout=PATIENCE_S / 2)
    try:
        in_time = watch(objects, target, share, victims)
        done = sums.result()
    except TweedError as error:
        return why(error)
    return Seen(wrong_with(done, refs, count, mode) or digest(done.array), in_time)


def wrong_with(done: Reduced, refs: list[Ref], count: int, mode: str) -> str:
    """What is wrong with a sum; nothing: its ranges are those of the ids that they name."""
    mark = 0
    for begin, end, included in done.included:
        right = sum(value_of(refs.index(ref)) for ref in included)
        if begin != mark or not (done.array[begin:end] == right).all():
            return f"wrong from {begin} to {end}: {set(done.array[begin:end].tolist())}, not {right}"
        if mode == "whole" and len(included) != count:
            return f"{len(included)} ids in place of {count}"
        mark = end
    return "" if mark == NUMEL else f"{mark} of {NUMEL} elements are named"


def taken_twice(objects: Objects) -> tuple[int, int]:
    """How many bytes came twice, and how many the largest block has."""
    return objects.taken_twice, objects._core.largest_block


def delete(objects: Objects, refs: list[Ref]) -> None:
    """They are gone."""
    for ref in refs:
        objects.delete(ref)


class Soak:
    """A run, and what came of it so far."""

    def __init__(self, seed: int) -> None:
        self.chance, self.fleet = random.Random(seed), Fleet(SIZE, WIRE_ONLY)
        self.rounds: Counter[str] = Counter()
        self.most_twice: Counter[str] = Counter()
        self.in_time = self.gone = 0
        self.twice = [0] * SIZE
        self.wrong: list[str] = []

    def round(self, kind: str) -> None:
        """One collective and one death."""
        watcher, victim, other = self.chance.sample(range(SIZE), 3)
        share, mode = self.chance.choice(SHARES), self.chance.choice(["whole", "ranges"])
        what = f"{kind} {mode} at {share:.0%}, round {self.rounds.total()}"
        if kind == "broadcast":
            found = self.broadcast(watcher, victim, self.chance.choice([victim, other]), share, None)
        elif kind == "shard of a broadcast":
            found = self.broadcast(watcher, victim, other, share, victim)
        elif kind.startswith("destination"):
            victims = [victim, other] if "shard" in kind else [victim]
            found = self.destination(watcher, victims, share, mode)
        else:
            shard = victim if "shard" in kind else None
            found = self.sum(watcher, victim, share, mode, kind != "sum", shard)
        if len(set(found)) != 1 or " " in found[0]:
            self.report(f"{what}: {found}")
        for twice, block in self.taken_twice():
            self.most_twice[kind] = max(self.most_twice[kind], twice)
            if "broadcast" in kind and twice > block + RECORD:
                self.report(f"{what}: {twice} bytes came twice at one, and no block has more than {block}")
        self.rounds[kind] += 1

    def report(self, wrong: str) -> None:
        """Something is wrong."""
        self.wrong.append(wrong)
        print(wrong, flush=True)

    def taken_twice(self) -> list[tuple[int, int]]:
        """How many bytes came twice in this round, by rank, and how many no block has more than."""
        now = [self.fleet.on(rank, taken_twice) for rank in range(SIZE)]
        before, self.twice = self.twice, [twice for twice, _ in now]
        return [(twice - earlier, block) for (twice, block), earlier in zip(now, before, strict=True)]

    def broadcast(self, watcher: int, victim: int, origin: int, share: float, shard: int | None) -> list[str]:
        """One puts and all get, but for a victim that is the shard. Returns what they have."""
        ref, value = self.fleet.ref_at(shard), self.chance.randrange(64)
        readers = [rank for rank in range(SIZE) if rank not in (watcher, victim)]
        getters = readers if shard == victim else [*readers, victim]
        for rank in (getter for getter in getters if getter != origin):
            self.fleet.start(rank, get, ref)
        self.fleet.start(watcher, get, ref, share, [self.pid(victim)])
        self.fleet.start(origin, put, ref, value)
        self.renew(victim)
        if origin == victim:
            self.fleet.on(victim, put, ref, value)
        else:
            self.fleet.end(origin)
            self.fleet.start(origin, get, ref)
        return self.ended(watcher, readers, [ref])

    def sum(
        self, watcher: int, victim: int, share: float, mode: str, is_wanted: bool, shard: int | None
    ) -> list[str]:
        """Each puts a source, but for a victim that is the shard, and one sums; maybe all get the sum.

        Returns: what they have.
        """
        target, refs = self.fleet.ref_at(shard), [Ref.new() for _ in range(SIZE)]
        count = self.chance.choice([SIZE - 2, SIZE - 1])
        for rank in range(SIZE):
            if rank != shard:
                self.fleet.on(rank, put_source, refs[rank], rank)
        readers = [rank for rank in range(SIZE) if is_wanted and rank not in (watcher, victim)]
        for rank in readers:
            self.fleet.start(rank, get, target)
        self.fleet.start(watcher, make_sum, target, refs, count, mode, share, [self.pid(victim)])
        self.renew(victim)
        self.fleet.on(victim, put_source, refs[victim], victim)
        return self.ended(watcher, readers, [target, *refs])

    def destination(self, watcher: int, victims: list[int], share: float, mode: str) -> list[str]:
        """Each puts a source, one sums, all but the victims get the sum. Returns what they have."""
        shard = victims[1] if len(victims) > 1 else None
        target, refs = self.fleet.ref_at(shard), [Ref.new() for _ in range(SIZE)]
        count = SIZE - len(victims)
        for rank in range(SIZE):
            self.fleet.on(rank, put_source, refs[rank], rank)
        readers = [rank for rank in range(SIZE) if rank not in (watcher, *victims)]
        for rank in readers:
            self.fleet.start(rank, get_sum, target, count, mode)
        pids = [self.pid(victim) for victim in victims]
        self.fleet.start(watcher, get_sum, target, count, mode, share, pids)
        self.fleet.on(victims[0], sum_until_killed, target, refs, count, mode)
        self.renew(*victims)
        for victim in victims:
            self.fleet.on(victim, put_source, refs[victim], victim)
        found = self.ended(watcher, readers, [])
        if all(text.startswith("DeadlineExceeded") for text in found):
            self.gone += 1
            target = Ref.new()
            found = [self.fleet.on(victims[0], make_sum, target, refs, count, mode).found]
        self.fleet.on(watcher, delete, [target, *refs])
        return found

    def pid(self, rank: int) -> int:
        """The process that has this rank now."""
        return int(self.fleet.processes[rank].pid)

    def renew(self, *victims: int) -> None:
        """Waits until they have been killed."""
        for victim in victims:
            self.fleet.processes[victim].join(PATIENCE_S)
            self.fleet.processes[victim].kill()  # if nothing of the collective came
            self.twice[victim] = 0
        self.fleet.replace(*victims)

    def ended(self, watcher: int, readers: list[int], refs: list[Ref]) -> list[str]:
        seen: list[Seen] = [self.fleet.end(rank) for rank in (watcher, *readers)]
        self.in_time += seen[0].in_time
        self.fleet.on(watcher, delete, refs)
        return [one.found for one in seen]


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    process._MESSAGE_S = 1e-4  # smaller blocks
    soak, began = Soak(given.seed), time.monotonic()
    for number in range(given.rounds):
        soak.round(KINDS[number % len(KINDS)])
    soak.fleet.close()
    right, took = given.rounds - len(soak.wrong), time.monotonic() - began
    print(f"{right} of {given.rounds} rounds were right: {dict(soak.rounds)}, {took:.0f} s")
    print(f"in {soak.in_time} of them the death came before the watcher had all; {soak.gone} sums were gone")
    print(f"so many bytes came twice at most at a process: {dict(soak.most_twice)}")
    raise SystemExit(bool(soak.wrong))


if __name__ == "__main__":
    main()
