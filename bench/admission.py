"""What strangers that call do to a run: time of a step, memory of the ranks, and how many were refused."""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

import tweed
from bench import footprint, recorder
from bench.run import Row, forked, quantile
from tweed import _core
from tweed.torch.node import node

PART = "strangers"
GOAL = 1.1  # times as long as a quiet step, at most
_RANKS = 2
_SIZE_BYTES = 1 << 20
_COMPUTE_S = 0.02
_SETTLE_S = 0.3  # in which ranks notice that a stranger has hung up
_SECRET = "a secret of the benchmark, not of a run"


class Siege(NamedTuple):
    """Blocks of so many seconds, as many quiet as attacked, by turns; calls a second, by kind."""

    blocks: int
    seconds: float
    rates: dict[str, float]


_KINDS = (
    "garbage",
    "claims of 4 GiB",
    "half a handshake",
    "a handshake heard before",
    "wrong secret",
    "silence",
)
#: 10,000 connections in all, if the stranger gets the time for them.
FULL = Siege(5, 0.6, {**dict.fromkeys(_KINDS, 250.0), "a flood of silence": 1600.0})
QUICK = FULL._replace(blocks=2)


class Block(NamedTuple):
    """What one rank saw: seconds of each step, bytes of memory at its peak over those before, CPU seconds."""

    steps_s: list[float]
    grown_bytes: int
    cpu_s: float


class Seen(NamedTuple):
    """What one rank saw of one kind of stranger."""

    quiet: list[Block]
    attacked: list[Block]
    callers: int
    refused: dict[str, int]


def besieged(siege: Siege) -> Iterator[Row]:
    """A row for each kind of stranger, of two ranks that train over sealed TCP."""
    print(f"  {PART}, {_RANKS} ranks", file=sys.stderr, flush=True)
    found = forked(_besieged, _RANKS, siege)
    for kind, rate in siege.rates.items():
        yield row(kind, rate, [of_rank[kind] for of_rank in found])


def row(kind: str, rate: float, seen: list[Seen]) -> Row:
    """A step lasts as long as on its slowest rank."""
    quiet_blocks, attacked_blocks = (
        _slowest([getattr(one, side) for one in seen]) for side in ("quiet", "attacked")
    )
    quiet, attacked = sorted(chain(*quiet_blocks)), sorted(chain(*attacked_blocks))
    pairs = zip(attacked_blocks, quiet_blocks, strict=True)
    reasons = {reason for one in seen for reason in one.refused}
    return {
        "part": PART,
        "side": kind,
        "ranks": len(seen),
        "bytes": _SIZE_BYTES,
        "calls_per_s": rate,
        "callers": seen[0].callers,
        "refused": {reason: sum(one.refused.get(reason, 0) for one in seen) for reason in sorted(reasons)},
        "steps": len(quiet),
        "attacked_steps": len(attacked),
        "quiet_median_s": statistics.median(quiet),
        "quiet_p99_s": quantile(quiet, 0.99),
        "attacked_median_s": statistics.median(attacked),
        "attacked_p99_s": quantile(attacked, 0.99),
        # Of each block over the one before it: who else works on the machine comes and goes.
        "ratio": statistics.median(statistics.median(a) / statistics.median(q) for a, q in pairs),
        "quiet_cpu_s": sum(block.cpu_s for one in seen for block in one.quiet) / len(quiet),
        "attacked_cpu_s": sum(block.cpu_s for one in seen for block in one.attacked) / len(attacked),
        "quiet_grown_bytes": max(block.grown_bytes for one in seen for block in one.quiet),
        "grown_bytes": max(block.grown_bytes for one in seen for block in one.attacked),
    }


def _slowest(sides: list[list[Block]]) -> list[list[float]]:
    """By block: the steps, each as long as on its slowest rank."""
    blocks = zip(*sides, strict=True)
    return [[max(step) for step in zip(*(b.steps_s for b in ranks), strict=True)] for ranks in blocks]


def _besieged(rank: int, ranks: int, siege: Siege) -> dict[str, Seen]:
    torch.set_num_threads(1)
    options = tweed.Options.resolve(tweed.Options(transport="tcp", secret=_SECRET))
    group = dist.new_group(backend="tweed", pg_options=options)
    engine, step = node(options), _stepper(group)
    descriptors: list[Any] = [None] * ranks
    dist.all_gather_object(descriptors, json.loads(engine.card()))
    with _stranger(descriptors, engine) if rank == 0 else nullcontext() as stranger:
        return {kind: _siege(engine, step, siege, (kind, stranger)) for kind in siege.rates}


def _stepper(group: Any) -> Callable[[], None]:
    """Some arithmetic on this rank's core, then an all-reduce, as a step of training has them."""
    gradients, x = torch.ones(_SIZE_BYTES // 4), torch.ones(256, 256)
    begin = time.perf_counter()
    for _ in range(20):
        x @ x
    took = torch.tensor([(time.perf_counter() - begin) / 20])
    dist.all_reduce(took, dist.ReduceOp.MAX)
    products = max(1, int(_COMPUTE_S / float(took)))

    def step() -> None:
        for _ in range(products):
            x @ x
        dist.all_reduce(gradients, group=group)
        gradients.fill_(1)

    return step


def _siege(
    engine: _core.Node, step: Callable[[], None], siege: Siege, by: tuple[str, _Stranger | None]
) -> Seen:
    (kind, stranger), before = by, engine.refused()
    sides: tuple[list[Block], list[Block]] = ([], [])
    callers = 0
    for _ in range(siege.blocks):
        sides[0].append(_block(step, siege.seconds))
        if stranger is not None:
            stranger.begin(kind, siege.rates[kind])
        sides[1].append(_block(step, siege.seconds))
        if stranger is not None:
            callers += stranger.stop()
        dist.barrier()
        time.sleep(_SETTLE_S)
    refused = {reason: count - before.get(reason, 0) for reason, count in engine.refused().items()}
    return Seen(*sides, callers, {reason: count for reason, count in refused.items() if count})


def _block(step: Callable[[], None], seconds: float) -> Block:
    """As many steps on all ranks: they agree on when it ends, out of the time that is counted."""
    dist.barrier()
    gc.collect()
    resident = footprint.resident()
    steps_s: list[float] = []
    cpu_s = time.process_time()
    with footprint.peak() as grown:
        while _all_go_on(sum(steps_s) < seconds):
            begin = time.perf_counter()
            step()
            steps_s.append(time.perf_counter() - begin)
    return Block(steps_s, grown() - resident, time.process_time() - cpu_s)


def _all_go_on(wanted: bool) -> bool:
    told = torch.tensor([int(wanted)])
    dist.all_reduce(told, dist.ReduceOp.MIN)
    return bool(told)


class _Stranger:
    """The process that calls, at rank 0's command."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def begin(self, kind: str, rate: float) -> None:
        self._say(f"{kind} {rate}")
        assert self._hear() == "begun"

    def stop(self) -> int:
        """How many connections it has made since `begin`."""
        self._say("stop")
        return int(self._hear())

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def _hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def _stranger(descriptors: list[dict[str, Any]], engine: _core.Node) -> Iterator[_Stranger]:
    recorded = recorder.handshake(engine, _SECRET)
    told = {"descriptors": descriptors, "recorded": recorded.hex()}
    words = [sys.executable, str(Path(__file__).with_name("stranger.py"))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        stranger = _Stranger(process)
        stranger._say(json.dumps(told))
        yield stranger
        assert process.stdin is not None
        process.stdin.close()
