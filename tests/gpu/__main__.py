"""Runs on a GPU what is written for CUDA tensors, over tweed, Gloo and NCCL: two ranks share the GPU."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import torch

from tests.gpu.parts import PARTS
from tests.gpu.run import rows
from tests.gpu.table import Row, render
from tweed.torch import build

LOG = Path("target/gpu-check.log")


def main() -> int:
    """0 unless something does not work over tweed."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="default: cuda")
    parser.add_argument("--part", choices=[part.name for part in PARTS], action="append", help="only these")
    parser.add_argument("--quick", action="store_true", help="a few cases of each part")
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        print("no GPU here, or a torch without CUDA: nothing was checked. `--device cpu` checks the script")
        return 0
    print(_where(given.device))
    found: list[Row] = []
    for part in PARTS:
        if not given.part or part.name in given.part:
            began = time.monotonic()
            found += rows(part, part.quick if given.quick else part.cases, given.device, part.limit_s)
            print(f"{part.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    LOG.parent.mkdir(exist_ok=True)
    LOG.write_text("\n".join(row.report() for row in found if row.log))
    print(render(found), f"The log: {LOG}", sep="\n")
    return int(any(row.bad for row in found))


def _where(device: str) -> str:
    """The device, and which of its two backends tweed has here."""
    name = torch.cuda.get_device_name() if device == "cuda" else "the CPU"
    try:
        build.build()
        binding = os.environ.get("TWEED_BINDING", "C++")
    except build.CannotCompile as reason:
        binding = f"Python: {reason}"
    return f"{name}, torch {torch.__version__}, tweed's backend: {binding}\n"


if __name__ == "__main__":
    sys.exit(main())
