"""Wrong settings at one rank of two: both end soon, and both are told which, of whom, and what to do.

Settings that need a network or more ranks are tried elsewhere: secrets and `TWEED_DIAL_ONLY` in
tests/torch/test_admission.py, firewalls in test_firewalls.py, plans in test_plans.py, hosts and ports that
are taken in test_setup.py, versions, clocks, routes and packets that are too long in tests/doctor.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
import torch.distributed as dist

from tweed.errors import TweedError
from tweed.testbed import run_ranks
from tweed.torch.options import Options

_SOON_S = 15.0


class Told(NamedTuple):
    """What a rank was told, and after how long."""

    text: str
    seconds: float


def meets(rank: int, size: int, store: str, environment: dict[str, str], options: Options | None) -> Told:
    """Rank 1 has another environment, and other options, than it should have."""
    if rank == 1:
        os.environ |= environment
    began = time.monotonic()
    try:
        given = options if rank == 1 else Options()
        dist.init_process_group(
            "tweed",
            store=dist.FileStore(store, size),
            rank=rank,
            world_size=size,
            pg_options=given,
            timeout=timedelta(seconds=30),
        )
    except TweedError as error:
        return Told(str(error), time.monotonic() - began)
    return Told("", time.monotonic() - began)


#: By what is wrong: rank 1's environment or options, and words that both ranks are told.
WRONG: dict[str, tuple[dict[str, str] | Options, list[str]]] = {
    "ports that are none": ({"TWEED_PORTS": "many"}, ["29600-29699", "'many'", "TWEED_PORTS"]),
    "ports in the wrong order": ({"TWEED_PORTS": "29699-29600"}, ["29600-29699", "TWEED_PORTS"]),
    "an unknown transport": ({"TWEED_TRANSPORT": "pigeon"}, ["transport", "pigeon", "auto, shm, tcp"]),
    "an unknown congestion control": ({"TWEED_CONGESTION": "none"}, ["'none'", "there are", "modprobe"]),
    "no number of streams": ({"TWEED_STREAMS": "some"}, ["TWEED_STREAMS", "whole number", "some"]),
    "no streams": ({"TWEED_STREAMS": "0"}, ["streams must be at least 1"]),
    "a deadline in words": ({"TWEED_DEADLINE": "soon"}, ["TWEED_DEADLINE", "seconds", "soon"]),
    "a deadline in the past": ({"TWEED_DEADLINE": "-1"}, ["deadline must be", "above 0", "-1"]),
    "an unknown binding": ({"TWEED_BINDING": "rust"}, ["binding", "rust", "native, python"]),
    "no switch": ({"TWEED_WIRE_ONLY": "yes"}, ["TWEED_WIRE_ONLY", "0 or 1", "yes"]),
    "a secret that is not there": ({"TWEED_SECRET_FILE": "/no/secret"}, ["/no/secret", "No such file"]),
    "a secret that is too short": ({"TWEED_SECRET": "me"}, ["secret", "openssl rand"]),
    "a secret where the other has none": ({"TWEED_SECRET": 40 * "s"}, ["secret", "TWEED_SECRET"]),
    "a negative server": (Options(server=-1), ["server must be a rank"]),
    "a server that is not there": (Options(server=7), ["server", "7"]),
    "metrics in words": ({"TWEED_METRICS": "often"}, ["TWEED_METRICS", "seconds", "often"]),
    "no other switch": ({"TWEED_DIAL_ONLY": "maybe"}, ["TWEED_DIAL_ONLY", "0 or 1", "maybe"]),
    "another server than the other": (Options(server=0), ["rank 0", "rank 1", "server", "the same"]),
    "a port of Prometheus that is none": (Options(prometheus="here"), ["here", "PORT"]),
    "an address that is another's": ({"TWEED_HOST": "192.0.2.1"}, ["192.0.2.1", "TWEED_HOST"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_both_ranks_are_told_what_is_wrong_with_one(tmp_path: Path, case: str) -> None:
    given, words = WRONG[case]
    environment, options = ({}, given) if isinstance(given, Options) else (given, None)
    for told in run_ranks(meets, 2, str(tmp_path / "store"), environment, options):
        assert all(word in told.text for word in words), told.text
        assert told.seconds < _SOON_S
