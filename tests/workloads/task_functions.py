"""What tests let tasks do."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch


def square(value: Any) -> Any:
    return value * value


def scaled(value: float, shared: dict[str, Any]) -> Any:
    return value * shared["array"], shared["tensor"] + value


def scaled_by(value: int, shared: int) -> int:
    return value * shared


def process(value: int) -> int:
    return os.getpid()


def kinds(value: Any) -> str:
    return f"{type(value).__name__} {getattr(value, 'dtype', '')}".strip()


def fails(value: int) -> int:
    if value == 2:
        raise ValueError("no twos")
    return value


def returns_a_function(value: int) -> Any:
    return square


def dies_once(payload: tuple[str, int]) -> int:
    """Each task with an odd number kills its process the first time."""
    folder, number = payload
    if number % 2:
        try:
            Path(folder, str(number)).touch(exist_ok=False)
        except FileExistsError:
            return number
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def dies(value: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return value


def leaves(value: int) -> None:
    sys.exit(3)


def blocks_first(payload: tuple[str, int]) -> int:
    """The first process that has task 0 hangs for good."""
    folder, number = payload
    if number == 0:
        try:
            Path(folder, "first").touch(exist_ok=False)
        except FileExistsError:
            return number
        signal.pause()
    return number


def is_stopped_first(payload: tuple[str, int]) -> int:
    """The first process that has task 0 is stopped, as by a debugger."""
    folder, number = payload
    if number == 0 and not Path(folder, "first").exists():
        Path(folder, "first").touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    return number


def pauses(value: int) -> int:
    if value:
        signal.pause()
    return value


def says_where(value: int) -> None:
    """Prints the number of its process, and hangs."""
    print(os.getpid(), flush=True)
    signal.pause()


def threads(value: int) -> tuple[int, str | None, int]:
    return torch.get_num_threads(), os.environ.get("TWEED_OF_TESTS"), len(np.ones(3))


def first(value: int, shared: Any) -> float:
    return float(shared[0]) + value


class Holder:
    """Has a method."""

    def method(self, value: int) -> int:
        return value
