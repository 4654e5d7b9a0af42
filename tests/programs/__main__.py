"""Runs programs and features over Gloo and over tweed in turn, and writes docs/programs.md."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import machine
from tests.programs import page, run
from tests.programs.table import Row, rows
from tweed.testbed import preload

#: Imported once, in the fork server: some of them take a second.
WARM = (
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
PAGE = Path(__file__).parents[2] / "docs" / "programs.md"
#: A line for each program as it was last measured.
RAW = Path(__file__).with_name("results.jsonl")


def main() -> int:
    """0 unless a program works over Gloo and not over tweed, without a reason."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("--pairs", type=int, default=15, help="turns of each backend; default: 15")
    parser.add_argument("--resume", action="store_true", help="measure only what has no result yet")
    parser.add_argument("--tables", action="store_true", help="measure nothing: the page from the results")
    parser.add_argument("names", nargs="*", help="only programs whose names begin so; leaves the page alone")
    given = parser.parse_args()
    preload(*WARM)
    chosen = [row for row in rows() if not given.names or row.name.startswith(tuple(given.names))]
    known = _results() if given.resume else {}
    for row in [] if given.tables else [row for row in chosen if row.name not in known]:
        found = {"where": _where(), "pairs": given.pairs, **asdict(run.compared(row, given.pairs))}
        with RAW.open("a") as lines:
            print(json.dumps({"name": row.name, **found}), file=lines)
        print(" ".join(_line(row, found).cells()), file=sys.stderr, flush=True)
    results = _results()
    lines = [_line(row, results[row.name]) for row in chosen if row.name in results]
    if not given.names:
        PAGE.write_text(page.render(lines, next(iter(results.values()))["pairs"], _places(results)))
        print(f"wrote {PAGE}")
    troubles = [f"{line.row.name}: {trouble}" for line in lines if (trouble := line.trouble())]
    print("\n".join(troubles), end="\n" if troubles else "")
    return int(bool(troubles))


def _results() -> dict[str, dict[str, Any]]:
    """The last line of each program."""
    lines = RAW.read_text().splitlines() if RAW.exists() else []
    return {found["name"]: found for found in map(json.loads, lines)}


def _line(row: Row, found: dict[str, Any]) -> page.Line:
    gloo, tweed = (run.Outcome(**found[backend]) for backend in run.BACKENDS)
    return page.Line(row, run.Compared(gloo, tweed, [(a, b) for a, b in found["pairs_s"]]))


def _places(results: dict[str, dict[str, Any]]) -> str:
    """Where the rows were measured: the first and the last."""
    first, last = min(found["where"] for found in results.values()), max(f["where"] for f in results.values())
    return first if first == last else f"{first}; to {last}"


def _where() -> str:
    environment = machine.environment()
    shown = ("date", "tweed", "cpu", "cores", "kernel", "python", "torch", "load")
    return ", ".join(f"{name} {environment[name]}" for name in shown)


if __name__ == "__main__":
    sys.exit(main())
