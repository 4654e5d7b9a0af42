"""Runs one program over Gloo and over tweed: what its first steps give, and how long a step takes."""

from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tests.programs.table import Row
from tests.torch.agents import agents
from tweed.errors import TweedError
from tweed.testbed import Ranks, run_ranks

#: Steps whose results are compared between backends; they also keep first connections out of the times.
FIRST = 3
#: In which order they have their turns, and about how long each is.
BACKENDS = ("gloo", "tweed")
TURN_S = 0.03
TIMEOUT_S = 40.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run.

    Attributes:
      failed: the last line of what was raised; empty: it worked.
      values: what the first steps gave, rank by rank.
    """

    failed: str
    values: list[float]


@dataclass(frozen=True, slots=True)
class Compared:
    """A program over both backends.

    Attributes:
      gloo, tweed: the first run of each.
      pairs_s: seconds over Gloo and over tweed, one after the other; empty where one of them fails, or under
        a launcher.
    """

    gloo: Outcome
    tweed: Outcome
    pairs_s: list[tuple[float, float]]


def compared(row: Row, pairs: int) -> Compared:
    """Runs it over both, then in turns that are timed.

    They live over both backends at once, and one waits while the other has its turn, so that other work on
    the machine meets both. Launched programs are not timed: most of their time is the import of torch.
    """
    gloo, tweed = once(row, "gloo"), once(row, "tweed")
    timed = pairs and not (row.agents or gloo.failed or tweed.failed)
    return Compared(gloo, tweed, _in_turns(row, pairs) if timed else [])


def once(row: Row, backend: str) -> Outcome:
    """One run."""
    try:
        return _launched(row, backend) if row.agents else _forked(row, backend)
    except (TweedError, subprocess.TimeoutExpired) as error:
        return Outcome(str(error).strip().splitlines()[-1], [])


def _forked(row: Row, backend: str) -> Outcome:
    by_rank = run_ranks(_first_steps, row.ranks, row.name, backend=backend, timeout=TIMEOUT_S)
    return Outcome("", [value for found in by_rank for value in found])


def _first_steps(rank: int, size: int, name: str) -> list[float]:
    step = _program(rank, size, name)
    return [value for _ in range(FIRST) for value in numbers(step())]


def _program(rank: int, size: int, name: str) -> Callable[[], Any]:
    torch.manual_seed(0)
    step: Callable[[], Any] = importlib.import_module(f"tests.programs.{name}").program(rank, size)
    return step


def _in_turns(row: Row, pairs: int) -> list[tuple[float, float]]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for backend in BACKENDS:
            os.mkfifo(Path(folder, backend))
        both = [
            stack.enter_context(Ranks(_turns, row.ranks, row.name, backend, folder, pairs, backend=backend))
            for backend in BACKENDS
        ]
        gloo, tweed = ([max(turn) for turn in zip(*ranks.join(5 * TIMEOUT_S), strict=True)] for ranks in both)
    return list(zip(gloo, tweed, strict=True))


def _turns(rank: int, size: int, name: str, backend: str, folder: str, number: int) -> list[float]:
    """Seconds per step of each turn. Rank 0 has it when a byte comes through its pipe, and passes it on."""
    step, span = _program(rank, size, name), 0.0
    for _ in range(FIRST):
        span = _timed(step)
    pipes = {one: os.open(Path(folder, one), os.O_RDWR) for one in BACKENDS}
    if rank == 0 and backend == BACKENDS[0]:
        os.write(pipes[backend], b"!")
    count, spans = _count(span), []
    for _ in range(number):
        if rank == 0:
            os.read(pipes[backend], 1)
        dist.barrier()
        spans.append(sum(_timed(step) for _ in range(count)) / count)
        dist.barrier()
        if rank == 0:
            os.write(pipes[next(one for one in BACKENDS if one != backend)], b"!")
    return spans


def _count(span: float) -> int:
    """How many steps fill a turn: the same on all ranks."""
    slowest = torch.tensor([span])
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return max(1, min(50, int(TURN_S / slowest.item())))


def _timed(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def numbers(found: Any) -> Iterator[float]:
    match found:
        case Tensor():
            yield from found.detach().double().flatten().tolist()
        case list() | tuple():
            yield from itertools.chain.from_iterable(map(numbers, found))
        case None:
            pass
        case _:
            yield float(found)


def _launched(row: Row, backend: str) -> Outcome:
    """The file as a script under torchrun, with the backend and a folder for what ranks find."""
    with tempfile.TemporaryDirectory() as folder:
        shape = (row.agents, row.ranks // row.agents)
        ended = agents(shape, row.options, (str(row.path), backend, folder))
        found = {file.name: file.read_text().split() for file in sorted(Path(folder).glob("rank *"))}
    if bad := [output for code, output in ended if code]:
        print(bad[0], file=sys.stderr)
        return Outcome(_reason(bad[0]), [])
    return Outcome("", [float(value) for values in found.values() for value in values])


def _reason(output: str) -> str:
    """The last line of an exception, of all that torchrun prints."""
    lines = [line for line in output.splitlines() if "Error" in line]
    return lines[0] if lines else output.strip().splitlines()[-1]


def agree(a: Outcome, b: Outcome) -> bool:
    """Whether both gave the same, to rounding."""
    if len(a.values) != len(b.values):
        return False
    pairs = (torch.tensor(one.values, dtype=torch.float64) for one in (a, b))
    return torch.allclose(*pairs, rtol=1e-3, atol=1e-5, equal_nan=True)
