"""How much memory an all-reduce takes beyond the tensor, per rank."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

import tweed
from bench.run import Row, forked

MB = 1 << 20
RANKS = 4
_CALLS = 5
_LOOK_EVERY_S = 0.002
_RESET_PEAK = "5"  # proc(5), clear_refs: the peak of resident memory starts anew


class Side(NamedTuple):
    """A group and where its tensors lie."""

    group: Callable[[], Any]
    tensor: Callable[[int], Tensor]


def _tweed(transport: str) -> Any:
    return dist.new_group(backend="tweed", pg_options=tweed.Options(transport=transport))


SIDES = {
    "Gloo": Side(lambda: dist.new_group(backend="gloo"), torch.empty),
    "tweed, shared memory": Side(lambda: _tweed("auto"), torch.empty),
    "tweed, shared memory, `tweed.empty`": Side(lambda: _tweed("auto"), tweed.empty),
    "tweed, TCP": Side(lambda: _tweed("tcp"), torch.empty),
}


def extra(sizes: tuple[int, ...]) -> Iterator[Row]:
    """A row for each size and side, of ranks that have done nothing before."""
    for size_bytes in sizes:
        for side in SIDES:
            found = forked(_growth, RANKS, side, size_bytes)
            yield {
                "part": "extra memory",
                "side": side,
                "ranks": RANKS,
                "bytes": size_bytes,
                "proportional_bytes": [proportional for proportional, _ in found],
                "resident_bytes": [resident for _, resident in found],
            }


def _growth(rank: int, ranks: int, name: str, size_bytes: int) -> tuple[int, int]:
    """Peaks of proportional and of resident memory during some calls, over what there was before them."""
    side = SIDES[name]
    group, tensor = side.group(), side.tensor(size_bytes // 4).fill_(0)
    dist.barrier(group)
    proportional, before = _proportional(), resident()
    with peak() as most, _watched() as seen:
        for _ in range(_CALLS):
            dist.all_reduce(tensor, group=group)
        dist.barrier(group)  # none leaves while another looks: memory shared by fewer counts for more
    return max(seen) - proportional, most() - before


def resident() -> int:
    """Bytes of this process that lie in memory now."""
    return _status("VmRSS")


@contextmanager
def peak() -> Iterator[Callable[[], int]]:
    """Gives what tells the most resident memory since now."""
    Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    yield lambda: _status("VmHWM")


@contextmanager
def _watched() -> Iterator[list[int]]:
    """Looks at proportional memory again and again meanwhile, and once at the end."""
    seen: list[int] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.append(_proportional())
            time.sleep(_LOOK_EVERY_S)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()
        seen.append(_proportional())


def _proportional() -> int:
    """Bytes of this process, where a page that n processes have mapped counts as the n-th part of a page."""
    return kilobytes(Path("/proc/self/smaps_rollup").read_text(), "Pss") * 1024


def _status(name: str) -> int:
    return kilobytes(Path("/proc/self/status").read_text(), name) * 1024


def kilobytes(text: str, name: str) -> int:
    """The figure of one line of the kernel's, `Name:  1234 kB`."""
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None  # the kernel has written it so for many years
    return int(found[1])
