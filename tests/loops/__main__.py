"""Runs many programs: `python -m tests.loops --programs 10000 --seed 1`; or one: `--program "Program()"`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.loops.draw import seeded
from tests.loops.judge import verdict
from tests.loops.program import Program, parse
from tests.loops.ranks import DEADLINE_S, StayingRanks
from tests.loops.shrink import shrunk


def main(arguments: list[str] | None = None) -> int:
    """Returns the number of programs that went wrong, 100 at most."""
    options = argparse.ArgumentParser(prog="python -m tests.loops", description=__doc__)
    options.add_argument("--programs", type=int, default=1000, help="how many are drawn")
    options.add_argument("--seed", type=int, default=1, help="of the draws")
    options.add_argument("--first", type=int, default=0, help="number of the first")
    options.add_argument("--only", default="", help="run those alone whose strategy begins so")
    options.add_argument("--program", help="text of one program, which is run alone")
    options.add_argument("--deadline", type=float, default=DEADLINE_S, help="seconds for each program")
    options.add_argument("--no-shrink", action="store_true", help="show wrong programs as they were drawn")
    options.add_argument("--stop-after", type=int, default=100, help="wrong programs to see at most")
    given = options.parse_args(arguments)
    with StayingRanks(deadline_s=given.deadline) as ranks:
        if given.program:
            words, refused = verdict(parse(given.program), ranks)
            print(words or f"right{', refused: ' + refused if refused else ''}")
            return int(bool(words))
        return _many(given, ranks)


def _many(given: argparse.Namespace, ranks: StayingRanks) -> int:
    refusals: Counter[str] = Counter()
    wrong, began = 0, time.monotonic()
    numbers = range(given.first, given.first + given.programs)
    done = 0
    for number in numbers:
        program = seeded(given.seed, number)
        if not program.strategy.startswith(given.only):
            continue
        words, refused = verdict(program, ranks)
        refusals[refused] += bool(refused)
        done += 1
        if words:
            wrong += 1
            _show(number, program, words, None if given.no_shrink else ranks)
        if done % 100 == 0:
            print(f"{done} programs in {time.monotonic() - began:.0f} s, {wrong} wrong", file=sys.stderr)
        if wrong >= given.stop_after:
            break
    counts = ", ".join(f"{name} {count}" for name, count in sorted(refusals.items()) if name)
    print(f"{done} programs of seed {given.seed}: {wrong} wrong; refused rightly: {counts or 'none'}")
    return min(wrong, 100)


def _show(number: int, program: Program, words: str, ranks: StayingRanks | None) -> None:
    most = 10 if "did not end" in words else 60  # each of them takes as long as its deadline
    small = program if ranks is None else shrunk(program, lambda one: verdict(one, ranks)[0], most)
    if ranks is not None:
        words = verdict(small, ranks)[0] or words
    print(f"program {number}: {words.strip()}\n    {small}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
