"""The example of the README runs, word for word."""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch.distributed as dist

from tweed.testbed import run_ranks

README = Path(__file__).parents[1] / "README.md"


def _example() -> str:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) == 1, "the README has one example"
    return str(blocks[0])


def _run_as_under_torchrun(rank: int, size: int, port: int) -> list[float]:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    space: dict[str, object] = {}
    exec(_example(), space)
    model = space["model"]
    weights = [value for param in model.parameters() for value in param.flatten().tolist()]
    dist.destroy_process_group()
    return weights


def test_the_example_ends_with_one_model_on_all_ranks() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    first, second = run_ranks(_run_as_under_torchrun, 2, store.port)
    assert first == second


def test_the_example_is_short() -> None:
    assert len([line for line in _example().splitlines() if line]) <= 14
