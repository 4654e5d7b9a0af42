"""Runs programs and features over Gloo and over tweed in turn, and writes docs/programs.md."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

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


def main() -> int:
    """0 unless a program works over Gloo and not over tweed, without a reason."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("--pairs", type=int, default=15, help="turns of each backend; default: 15")
    parser.add_argument("names", nargs="*", help="only programs whose names begin so; writes nothing")
    given = parser.parse_args()
    preload(*WARM)
    chosen = [row for row in rows() if not given.names or row.name.startswith(tuple(given.names))]
    began = time.monotonic()
    lines = list(_lines(chosen, given.pairs))
    minutes = (time.monotonic() - began) / 60
    text = page.render(lines, minutes, given.pairs, _where())
    if given.names:
        print(text)
    else:
        PAGE.write_text(text)
        print(f"wrote {PAGE} in {minutes:.1f} minutes")
    troubles = [f"{line.row.name}: {trouble}" for line in lines if (trouble := line.trouble())]
    print("\n".join(troubles), end="\n" if troubles else "")
    return int(bool(troubles))


def _lines(chosen: list[Row], pairs: int) -> Iterator[page.Line]:
    for row in chosen:
        line = page.Line(row, run.compared(row, pairs))
        print(" ".join(line.cells()), file=sys.stderr, flush=True)
        yield line


def _where() -> str:
    environment = machine.environment()
    text = ", ".join(
        f"{name.replace('_', ' ')} {value}" for name, value in environment.items() if name != "part"
    )
    warning = machine.warning(environment)
    return f"with {text}{f'. **{warning}**' if warning else ''}"


if __name__ == "__main__":
    sys.exit(main())
