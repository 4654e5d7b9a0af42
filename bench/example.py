"""The measuring programs of crates/kernels: built if need be, run in one process, and read."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_ROOT = Path(__file__).parents[1]
_COMMAND = "cargo run --release --quiet --locked --package tweed-kernels --example"
_LINE = re.compile(r"  (?P<name>\S.*?) +(?P<gb_per_s>[\d.]+) GB/s(?: +(?P<ms>[\d.]+) ms)?")


class Figure(NamedTuple):
    """A line of a program's output, under the title `of`. `least_s` is None where none is printed."""

    of: str
    side: str
    gb_per_s: float
    least_s: float | None

    def row(self, part: str) -> dict[str, Any]:
        """As a row of raw data."""
        row: dict[str, Any] = {"part": part, "of": self.of, "side": self.side, "gb_per_s": self.gb_per_s}
        return row if self.least_s is None else row | {"least_s": self.least_s}


def output(name: str) -> str:
    """What the example `name` prints; nothing, and a word why, without cargo."""
    if shutil.which("cargo") is None:
        print("  no cargo here: the kernels are not measured", file=sys.stderr)
        return ""
    print("  the kernels' example, one process", file=sys.stderr, flush=True)
    command = [*_COMMAND.split(), name]
    return subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True).stdout


def figures(output: str) -> Iterator[Figure]:
    """The lines of all blocks; blocks begin with a title and end with an empty line."""
    for block in filter(None, output.strip().split("\n\n")):
        title, *lines = block.splitlines()
        for found in filter(None, map(_LINE.match, lines)):
            least_s = None if found["ms"] is None else float(found["ms"]) / 1e3
            yield Figure(title, found["name"], float(found["gb_per_s"]), least_s)
