"""The backend is there without an import of tweed, and costs a program without it next to nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import torch
import torch.distributed as dist

from tweed.torch import register

PROGRAM = """
import json, sys
import torch.distributed as dist
loaded = sorted(name for name in sys.modules if name.split(".")[0] == "tweed")
print(json.dumps([hasattr(dist.Backend, "TWEED"), loaded]))
"""


def fresh(autoload: str) -> tuple[bool, list[str]]:
    """In a new process that imports torch alone: is the backend known, and what of tweed is loaded?"""
    env = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
    text = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True
    )
    known, loaded = json.loads(text.stdout)
    return known, loaded


def test_torch_finds_the_backend_and_loads_nothing_heavy() -> None:
    known, loaded = fresh("1")
    assert known
    assert not {"tweed._core", "tweed.collective", "tweed.torch.backend", "tweed.torch.build"} & set(loaded)


def test_autoload_can_be_switched_off() -> None:
    known, loaded = fresh("0")
    assert not known
    assert not loaded


def test_register_may_be_repeated() -> None:
    register()
    before = dist.Backend._plugins["TWEED"]
    register()
    assert dist.Backend._plugins["TWEED"] is before
    assert dist.Backend.backend_capability["tweed"] == ["cpu", "cuda"]


def test_default_group_of_one() -> None:
    dist.init_process_group("tweed", store=dist.HashStore(), rank=0, world_size=1)
    try:
        group = dist.group.WORLD
        assert group is not None
        assert dist.get_backend() == "tweed"
        assert group._get_backend(torch.device("cpu")).name() == "tweed"
    finally:
        dist.destroy_process_group()
