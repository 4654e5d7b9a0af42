"""Times from the notes of the experiment on MultiTree, for its goals and its report. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from tweed.simulate import models, workload
from tweed.systems.base import Line

#: Bytes per second of a link in this experiment: D/b is a buffer's bytes over it.
BANDWIDTH = 16_000_000_000
#: The quickest of all builders at each size.
BEST = "best of all"
#: Bytes: from where to where the paper's sizes go.
SMALL, LARGE = 32 << 10, 64 << 20
SIZES = (SMALL, 1 << 17, 1 << 19, 1 << 21, 1 << 23, LARGE)
#: The network on which models are trained.
TRAINED = "torus 8x8"


class Cell(NamedTuple):
    """What was timed."""

    network: str
    collective: str
    builder: str
    packets: bool = False


class Times:
    """By cell and size, the seconds of the number of pieces that was quickest.

    `BEST` is a builder too: at every size the quickest of those that send messages.

    Args:
      lines: the notes.
      sliced: chunks may be cut into the engine's slices; False: they cross whole, as in the paper.
    """

    def __init__(self, lines: Sequence[Line], sliced: bool = True) -> None:
        self._keys = ("seconds", "sliced_s") if sliced else ("seconds",)
        self._by_cell: defaultdict[Cell, dict[int, float]] = defaultdict(dict)
        self._who: dict[tuple[str, str, int], str] = {}
        for line in lines:
            if line["kind"] == "time":
                for seconds in filter(None, (line[key] for key in self._keys)):
                    self._add(line, seconds)

    def _add(self, line: Line, seconds: float) -> None:
        cell = Cell(line["network"], line["collective"], line["builder"], line["packets"])
        size = line["numbytes"]
        if seconds < self._by_cell[cell].get(size, float("inf")):
            self._by_cell[cell][size] = seconds
        best = Cell(cell.network, cell.collective, BEST)
        if not cell.packets and seconds < self._by_cell[best].get(size, float("inf")):
            self._by_cell[best][size] = seconds
            self._who[cell.network, cell.collective, size] = cell.builder

    def of(self, cell: Cell) -> dict[int, float]:
        """Seconds by size; empty if it was not timed."""
        return self._by_cell.get(cell, {})

    def seconds(self, cell: Cell, size: int) -> float | None:
        """None if it was not timed."""
        return self.of(cell).get(size)

    def share(self, cell: Cell, size: int) -> float | None:
        """In D/b."""
        seconds = self.seconds(cell, size)
        return None if seconds is None else seconds * BANDWIDTH / size

    def winner(self, network: str, collective: str, size: int) -> str:
        """Who is the best of all."""
        return self._who[network, collective, size]

    def networks(self, collective: str = "all_reduce") -> list[str]:
        """Those timed, in the order in which they were."""
        return list(dict.fromkeys(cell.network for cell in self._by_cell if cell.collective == collective))

    def builders(self, network: str, collective: str = "all_reduce") -> list[str]:
        """Those timed there, in the order of the table of builders, and `BEST`."""
        cells = [cell for cell in self._by_cell if cell[:2] == (network, collective)]
        names = dict.fromkeys(cell.builder for cell in cells if cell.builder != BEST)
        return [*names, BEST] if cells else []

    def sizes(self, network: str) -> list[int]:
        """Those that all-reduces were timed at there."""
        return sorted(self.of(Cell(network, "all_reduce", BEST)))

    def step(self, cell: Cell, model: str, overlap: bool) -> workload.Step | None:
        """A training step of one of `simulate.models.MODELS`; None if a size was not timed."""
        load, known = models.MODELS[model](), self.of(cell)
        if any(layer.numbytes not in known for layer in load.layers if layer.numbytes):
            return None
        return workload.step(load, known.__getitem__, overlap=overlap)


def ranks(torus: str) -> int:
    """How many a torus of two sides has, by its name; 0: it is none."""
    x, _, y = torus.removeprefix("torus ").partition("x")
    return int(x) * int(y) if torus.startswith("torus ") else 0


def weak(torus: str) -> int:
    """The size of weak scaling on a torus: 375 KiB per rank."""
    return 375 * 1024 * ranks(torus)


def ratio(slow: float | None, quick: float | None) -> float | None:
    """How many times as long; None where one of them is not known."""
    return None if slow is None or quick is None else slow / quick
