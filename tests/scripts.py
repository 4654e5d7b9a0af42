"""Scripts as torchrun would start them: ranks and the store's place by the environment."""

from __future__ import annotations

import os

import torch.distributed as dist

from tweed.testbed import run_ranks


def as_scripts(text: str, size: int) -> list[list[float]]:
    """Runs a script's text on `size` ranks. Gives the parameters of its `model`, by rank."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return run_ranks(_run, size, text, store.port)


def _run(rank: int, size: int, text: str, port: int) -> list[float]:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    space: dict[str, object] = {}
    exec(text, space)
    if dist.is_initialized():
        dist.destroy_process_group()
    local = [getattr(param, "_local_tensor", param) for param in space["model"].parameters()]
    return [value for param in local for value in param.flatten().tolist()]
