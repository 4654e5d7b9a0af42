"""What ranks tell each other, on real ranks; and one that sends pickles."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tweed.elastic.state import broadcast as broadcast_state
from tweed.errors import DataError
from tweed.exchange import values
from tweed.testbed import run_ranks

FIRST = 1  # the ranks of the smaller group are those from here on
ATTACKER = 1
LENGTHS = (1 << 40, 0, -1)


class Attack:
    """As a pickle it makes a file where it is read."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.place,)


def told(rank: int, size: int) -> None:
    """A gather and a broadcast, in the default group and in one of some of its ranks."""
    some = dist.new_group(list(range(FIRST, size)))
    for group, first in [(None, 0), *([(some, FIRST)] if rank >= FIRST else [])]:
        for default in ("cpu", "meta"):
            with torch.device(default):
                own = {"rank": (rank, "x" * 1000 * rank), 1: torch.full([rank], rank, device="cpu")}
                found = values.gather(group, own)
                sent = values.broadcast(group, own if rank == size - 1 else None, size - 1 - first)
        assert [one["rank"] for one in found] == [(other, "x" * 1000 * other) for other in range(first, size)]
        assert found[-1][1].tolist() == sent[1].tolist() == [size - 1] * (size - 1)


@pytest.mark.parametrize("backend", ["gloo", "tweed"])
def test_ranks_tell_each_other_values_and_tensors(backend: str) -> None:
    run_ranks(told, 3, backend=backend)


def gathers(size: int) -> Any:
    return values.gather(None, "sound")


def broadcasts(size: int) -> Any:
    return values.broadcast(None, None, ATTACKER)


def takes_state(size: int) -> Any:
    return broadcast_state(None, dist.distributed_c10d._get_default_group(), ATTACKER, 8)


CALLS = (gathers, broadcasts, takes_state)


def say(call: Callable[[int], Any], data: Tensor, size: int) -> None:
    """What the collectives of this call send, with `data` in the place of a value's."""
    if call is gathers:
        dist.all_gather([torch.empty_like(data) for _ in range(size)], data)
    else:
        dist.broadcast(data, ATTACKER)


def attacked(rank: int, size: int, folder: Path) -> list[tuple[str, str]]:
    """One rank says pickles, and claims lengths. Returns what it said, and the error of this rank."""
    content = io.BytesIO()
    torch.save([Attack(folder / "run")], content)
    found = []
    for call, data in product(CALLS, [pickle.dumps(Attack(folder / "run")), content.getvalue(), *LENGTHS]):
        if rank != ATTACKER:
            with pytest.raises(DataError) as error:
                call(size)
            found.append((str(data), str(error.value)))
        elif isinstance(data, bytes):
            say(call, torch.tensor([len(data)]), size)
            say(call, torch.frombuffer(bytearray(data), dtype=torch.uint8), size)
        else:
            say(call, torch.tensor([data]), size)
    return found


def test_the_attack_is_one(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Attack(tmp_path / "run")))
    assert (tmp_path / "run").exists()


@pytest.mark.parametrize("backend", ["gloo", "tweed"])
def test_a_rank_that_sends_what_is_no_value_is_named_and_nothing_of_it_runs(
    backend: str, tmp_path: Path
) -> None:
    found = run_ranks(attacked, 3, tmp_path, backend=backend)
    assert not list(tmp_path.iterdir())
    for data, text in found[0] + found[2]:
        claims = data.removeprefix("-").isdigit()
        what = f"claims to send {data} bytes" if claims else "has sent what is no plain value, and nothing"
        assert f"rank {ATTACKER} {what}" in text
    assert len(found[0]) == len(CALLS) * (2 + len(LENGTHS))
