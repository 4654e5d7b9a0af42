"""The way of a gradient of `every_step` through the Python files is the one that docs/update.md tells."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

import tweed
from tweed.testbed import run_ranks

PAGE = Path(__file__).parents[2] / "docs/update.md"


def _file(frame: FrameType | None) -> str:
    return "" if frame is None else frame.f_code.co_filename.partition("/python/tweed/")[2]


def _calls(rank: int, size: int) -> list[tuple[str, str]]:
    """The calls of one backward pass of one gradient, up to torch's all-reduce: by whom, into which file."""
    model = torch.nn.Linear(4, 2, bias=False)
    run, calls = tweed.attach(model, torch.optim.SGD(model.parameters(), lr=0.1)), []
    all_reduce = dist.all_reduce

    def trace(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and _file(frame) and _file(frame) != _file(frame.f_back):
            calls.append((_file(frame.f_back), _file(frame)))

    def reached(*args: Any, **kwargs: Any) -> Any:
        sys.settrace(None)
        return all_reduce(*args, **kwargs)

    loss = model(torch.ones(3, 4)).sum()
    dist.all_reduce = reached
    threading.settrace(trace)
    sys.settrace(trace)  # autograd's thread for the CPU is the caller's
    try:
        loss.backward()
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        dist.all_reduce = all_reduce
    run.detach()
    return calls


def test_a_gradient_crosses_the_files_that_the_page_names() -> None:
    calls = run_ranks(_calls, 2, backend="tweed", timeout=60)[0]
    files = list(dict.fromkeys(file for _, file in calls))
    walk = PAGE.read_text().partition("## Walk 1")[2].partition("## Walk 2")[0]
    named = set(re.findall(r"\(\.\./python/tweed/([\w/]+\.py)\)", walk)) - {"aggregate/mean.py"}  # not called
    assert set(files) == named
    assert len(calls) - len(files) <= 4, calls  # calls into a file that was visited before
