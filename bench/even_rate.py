"""How evenly rounds fill a link: DiLoCo whole, delayed, and in fragments, read at a worker's port.

Four workers behind 20 Mbit/s take steps that sleep. While they train, a thread of the first one reads how
many bytes have left its link, headers included. Of windows of equal length: the share in which the link was
busy, and the most that a window had beside their mean.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

import tweed
from bench import networks
from bench.run import Row
from bench.units import grid
from tweed.testbed import LiveNetwork, Network, Ranks, sent_bytes

PART = "evenness of a link's rate"
RATE_BITS = 20e6
#: A window is busy in which the link sent more than this share of what it can.
BUSY = 0.1
STRATEGIES = (
    "diloco(every=32)",
    "diloco(every=32, delay=8)",
    "diloco(every=32, delay=8, fragments=4)",
    "diloco(every=32, delay=8, fragments=8)",
)


@dataclass(frozen=True, slots=True)
class Scope:
    """Rounds that are watched, after one that is not; a step's seconds, and those of a window."""

    rounds: int = 4
    step_s: float = 0.05
    window_s: float = 0.1


FULL, QUICK = Scope(), Scope(1)


def rows(scope: Scope) -> Iterator[Row]:
    """A row for each strategy; where no network can be built, one that says why."""
    network = Network.parse(f"rate={RATE_BITS / 1e6:g}mbit")
    yield from networks.on_network(network, lambda bed: _measured(bed, scope))


def _measured(bed: LiveNetwork, scope: Scope) -> Iterator[Row]:
    for strategy in STRATEGIES:
        with Ranks(_trained, 4, strategy, scope, backend="tweed", bed=bed) as ranks:
            [seconds, *_] = ranks.join(300.0)
        yield {"part": PART, "side": strategy, **seconds}


def _trained(rank: int, size: int, strategy: str, scope: Scope) -> dict[str, float]:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(200, 200) for _ in range(8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    run = tweed.attach(model, optimizer, strategy)
    x = torch.randn(1, 200)

    def steps(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            time.sleep(scope.step_s)
            optimizer.step()

    steps(32)
    with _Port(scope.window_s) as port:
        began = time.perf_counter()
        steps(32 * scope.rounds)
        took_s = time.perf_counter() - began
    run.finish()
    return {"step_s": took_s / (32 * scope.rounds), **evenness(port.sent, scope.window_s)}


class _Port:
    """Reads within its context what has left this rank's link, at the end of each window."""

    def __init__(self, window_s: float) -> None:
        self.sent: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(window_s,))

    def __enter__(self) -> _Port:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _read(self, window_s: float) -> None:
        self.sent.append(sent_bytes() or 0)
        while not self._over.wait(window_s):
            self.sent.append(sent_bytes() or 0)


def evenness(sent: Sequence[int], window_s: float) -> dict[str, float]:
    """Share of busy windows, and the largest over the mean, of bytes `sent` so far at their ends.

    Example:
      >>> evenness([0, 0, 500_000], 0.1)
      {'busy': 0.5, 'peak': 2.0}
    """
    windows = [later - earlier for earlier, later in pairwise(sent)]
    busy = sum(8 * one > BUSY * RATE_BITS * window_s for one in windows)
    return {"busy": busy / len(windows), "peak": max(windows) * len(windows) / max(1, sum(windows))}


def table(found: Sequence[Row]) -> str:
    """A line for each strategy."""
    body = [
        (f"`{row['side']}`", f"{1e3 * row['step_s']:.1f} ms", f"{row['busy']:.0%}", f"{row['peak']:.1f}")
        for row in found
        if row["part"] == PART and "busy" in row
    ]
    head = ("strategy", "a step", "windows in which the link is busy", "largest window over their mean")
    return f"## An even rate\n\n{grid(head, body)}" if body else ""
