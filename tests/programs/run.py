"""Runs one program over one backend, once: what its first steps gave, and how long a step takes."""

from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bench.run import quantile
from tests.programs.table import Row
from tests.torch.agents import agents
from tweed.errors import TweedError
from tweed.testbed import preload, run_ranks

#: Imported once, in the fork server: some of them take a second.
preload(
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.distributed.pipelining",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.optim",
    "torch.distributed.algorithms.join",
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks",
    "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook",
    "torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook",
)
#: Steps whose results are compared between backends; they also keep first connections out of the times.
FIRST = 3
TIMEOUT_S = 40.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run.

    Attributes:
      failed: the last line of what was raised; empty: it worked.
      values: what the first steps gave, rank by rank.
      step_s: what a tenth of the timed steps stay below, each as long as on its slowest rank: what others do on the
        machine lengthens steps, and few tell of a program alone. Of a launched program, from the meeting to the
        end of its last life.
    """

    failed: str
    values: list[float]
    step_s: float


def once(row: Row, backend: str, seconds: float) -> Outcome:
    """One run; steps are timed for about so many seconds (0: not at all)."""
    try:
        return _launched(row, backend) if row.agents else _forked(row, backend, seconds)
    except (TweedError, subprocess.TimeoutExpired) as error:
        return Outcome(str(error).strip().splitlines()[-1], [], 0.0)


def _forked(row: Row, backend: str, seconds: float) -> Outcome:
    by_rank = run_ranks(_life, row.ranks, row.name, seconds, backend=backend, timeout=TIMEOUT_S)
    values = [value for found, _ in by_rank for value in found]
    slowest = [max(spans) for spans in zip(*(spans for _, spans in by_rank), strict=True)]
    return Outcome("", values, quantile(sorted(slowest), 0.1) if slowest else 0.0)


def _life(rank: int, size: int, name: str, seconds: float) -> tuple[list[float], list[float]]:
    """On a rank: what the first steps gave, and the times of others."""
    torch.manual_seed(0)
    step = importlib.import_module(f"tests.programs.{name}").program(rank, size)
    values, spans = [], []
    for _ in range(FIRST):
        began = time.perf_counter()
        values += list(_numbers(step()))
        spans.append(time.perf_counter() - began)
    return values, [_timed(step) for _ in range(_count(spans[-1], seconds))]


def _count(span: float, seconds: float) -> int:
    """How many steps take about `seconds`: the same on all ranks."""
    if not seconds:
        return 0
    slowest = torch.tensor([span])
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return max(5, min(200, int(seconds / slowest.item())))


def _timed(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def _numbers(found: Any) -> Iterator[float]:
    match found:
        case Tensor():
            yield from found.detach().double().flatten().tolist()
        case list() | tuple():
            yield from itertools.chain.from_iterable(map(_numbers, found))
        case None:
            pass
        case _:
            yield float(found)


def _launched(row: Row, backend: str) -> Outcome:
    """The file as a script under torchrun, with the backend and a folder into which ranks put what they found."""
    with tempfile.TemporaryDirectory() as folder:
        root = str(row.path.parents[3])
        paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        shape = (row.agents, row.ranks // row.agents)
        ended = agents(shape, row.options, (str(row.path), backend, folder), {"PYTHONPATH": paths})
        found = {file.name: file.read_text().split() for file in sorted(Path(folder).glob("rank *"))}
    if bad := [output for code, output in ended if code]:
        print(bad[0], file=sys.stderr)
        return Outcome(_reason(bad[0]), [], 0.0)
    numbers = [[float(value) for value in values] for values in found.values()]
    return Outcome("", [value for own in numbers for value in own[1:]], max(own[0] for own in numbers))


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


def repeated(row: Row, times: int, seconds: float) -> Mapping[str, list[Outcome]]:
    """So many runs over each backend, in pairs whose order alternates. What has failed is not run again.

    torchrun's workers import torch anew, which costs seconds: of launched programs there are two pairs.
    """
    found: dict[str, list[Outcome]] = {"gloo": [], "tweed": []}
    for number in range(min(times, 2) if row.agents else times):
        for backend in sorted(found, reverse=number % 2 == 1):
            if not any(outcome.failed for outcome in found[backend]):
                found[backend].append(once(row, backend, seconds))
    return found
