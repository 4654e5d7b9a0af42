"""Runs a part's cases on two ranks that share the device, and compares what they give with the host's."""

from __future__ import annotations

import os
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

import tweed.torch
from tests.gpu import table
from tests.gpu.parts import Check, Part
from tests.gpu.table import Row
from tests.programs.run import numbers
from tweed.errors import UsageError
from tweed.testbed import Event, Failed, Ranks, Said, say

#: After so long a collective call fails; after so long without news a case hangs, and its ranks are ended.
CALL_S, CASE_S = 8.0, 25.0
#: Errors after which a process can do no more on its GPU.
BROKEN = ("CUDA error", "NCCL error")
LATE = "the time of the part was over"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case on one rank.

    Attributes:
      values: what it gave.
      failed: the traceback of what it raised; empty: none.
      refused: that was an error of tweed's by which it refuses what it was asked for.
    """

    values: Sequence[float] = ()
    failed: str = ""
    refused: bool = False


def rows(part: Part, cases: Sequence[str], device: str, limit_s: float) -> Iterator[Row]:
    """A row for each case and backend. What they give is compared with tensors of the host, over tweed.

    Args:
      device: "cuda", or "cpu".
      limit_s: cases that have not begun after so long are not run, and their rows say so.
    """
    ends = time.monotonic() + limit_s
    backends = [name for name in part.backends if name != "nccl" or device == "cuda"]
    reference = dict(_outcomes(part, cases, "cpu", backends[0], ends))
    for backend in backends:
        for case, by_rank in _outcomes(part, cases, device, backend, ends):
            yield Row(part.name, case, backend or "-", *_judged(by_rank, reference[case]))


def _judged(by_rank: Sequence[Outcome], reference: Sequence[Outcome]) -> tuple[str, str]:
    """A word of the table, and the reason."""
    bad = [one for one in by_rank if one.failed]
    log = "\n".join(dict.fromkeys(one.failed for one in bad))
    if log == LATE:
        return table.NOT_RUN, log
    if bad:
        return table.REFUSED if all(one.refused for one in bad) else table.FAILED, log
    if any(one.failed for one in reference):
        return table.NO_REFERENCE, "\n".join(one.failed for one in reference)
    for rank, (mine, true) in enumerate(zip(by_rank, reference, strict=True)):
        if why := _difference(*(torch.tensor(one.values, dtype=torch.float64) for one in (mine, true))):
            return table.DIFFERS, f"rank {rank}: {why}"
    return table.OK, ""


def _difference(mine: Tensor, true: Tensor) -> str:
    """Where they differ most, if by more than rounding."""
    if mine.shape != true.shape:
        return f"{mine.numel()} values, and {true.numel()} on the host"
    if torch.allclose(mine, true, rtol=1e-3, atol=1e-5, equal_nan=True):
        return ""
    place = int((mine - true).abs().nan_to_num(torch.inf).argmax())
    return f"value {place} of {mine.numel()} is {mine[place]:g}, and {true[place]:g} on the host"


def _outcomes(
    part: Part, cases: Sequence[str], device: str, backend: str, ends: float
) -> Iterator[tuple[str, list[Outcome]]]:
    """Case by case. After one that hangs, kills a rank or breaks it, new ranks go on with the next one."""
    size, left = part.ranks, list(cases)
    while left and time.monotonic() < ends:
        with (
            tempfile.TemporaryDirectory() as folder,
            Ranks(_cases, size, part.check, tuple(left), device, backend, folder) as ranks,
        ):
            for by_rank in _heard(ranks, len(left), ends):
                yield left.pop(0), by_rank
    yield from ((case, [Outcome(failed=LATE)]) for case in left)


def _heard(ranks: Ranks, number: int, ends: float) -> Iterator[list[Outcome]]:
    """What ranks say of each case, up to the first one that is not brought to an end."""
    heard: list[list[Outcome]] = [[] for _ in range(ranks.size)]
    for place in range(number):
        why = ""
        while not why and min(map(len, heard)) <= place:
            events = ranks.poll(max(0.0, min(CASE_S, ends - time.monotonic())))
            for event in events:
                if isinstance(event, Said):
                    heard[event.rank].append(event.value)
            why = _trouble(events, ranks, ends)
        by_rank = [said[place] if len(said) > place else Outcome(failed=why) for said in heard]
        yield by_rank
        if why or any(word in one.failed for one in by_rank for word in BROKEN):
            return


def _trouble(events: Sequence[Event], ranks: Ranks, ends: float) -> str:
    """Why the case will not end, if so; ranks that hang print their stacks."""
    if events:
        return next((event.text for event in events if isinstance(event, Failed)), "")
    for rank in ranks.running():
        ranks.kill(rank, signal.SIGUSR1)
    ranks.poll(0.5)
    return "hangs until the time of its part is over" if time.monotonic() >= ends else f"hangs for {CASE_S} s"


def _cases(
    rank: int, size: int, check: Check, cases: Sequence[str], device: str, backend: str, folder: str
) -> None:
    """On a rank: tells the launcher of each case."""
    if device == "cpu":  # or FSDP2 takes the GPU, whatever the model is on
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    tweed.torch.register()  # torch does, unless tweed is a mere folder on the path
    # NCCL refuses two ranks on one GPU of one host, so each says that it is another host; they meet over TCP.
    os.environ |= {"NCCL_HOSTID": str(rank), "NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
    for place, case in enumerate(cases):
        store = dist.FileStore(f"{folder}/{place}", size)
        try:
            with _group(backend, store, rank, size):
                outcome = Outcome(list(numbers(check(case, rank, size, torch.device(device)))))
        except Exception as error:  # noqa: BLE001 whatever a case raises is what is to be found
            outcome = Outcome(failed=traceback.format_exc(), refused=isinstance(error, UsageError))
        say(outcome)
        store.set(f"{rank} is through", "")
        store.wait([f"{peer} is through" for peer in range(size)], timedelta(days=1))  # the launcher ends it


@contextmanager
def _group(backend: str, store: dist.Store, rank: int, size: int) -> Iterator[None]:
    """A default group of this case's own, whatever has become of the one before; none without a backend."""
    if backend:
        timeout = timedelta(seconds=CALL_S)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
