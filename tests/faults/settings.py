"""Wrong settings at one rank of two, and what both are told.

`python -m tests.faults.settings` writes docs/settings.md.
The test of the same name holds each row to it, and the page to the rows.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

import tweed
from tweed import distribution
from tweed.errors import TweedError
from tweed.testbed import LiveNetwork, Network, Ranks, opened
from tweed.torch.options import Options

PAGE = Path(__file__).parents[2] / "docs/settings.md"
_SECRET = {"TWEED_SECRET": 40 * "s"}


@dataclass(frozen=True)
class Wrong:
    """A row: what is wrong, and words of what both ranks are told.

    Attributes:
      setting: for people.
      environment, options, strategy: rank 1's; rank 0 has those that are right.
      sizes: of the group, as ranks 0 and 1 are told.
      everywhere: environment of both.
      lie: changes rank 1's process before it meets the others.
      network: commands for rank 1's host of a testbed; None: both ranks are on this host.
    """

    setting: str
    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    options: Options | None = None
    sizes: tuple[int, int] = (2, 2)
    strategy: str = ""
    everywhere: dict[str, str] = field(default_factory=dict)
    lie: Callable[[], None] | None = None
    network: tuple[str, ...] | None = None


class Told(NamedTuple):
    """What a rank was told, and after how long."""

    text: str
    seconds: float


def _late_clock() -> None:
    now = time.time
    time.time = lambda: now() - 300.0


def _early_clock() -> None:
    now = time.time
    time.time = lambda: now() + 300.0


def _other_version() -> None:
    distribution.version = lambda: "0.0.9"


def _variable(text: str, words: list[str], **everywhere: str) -> Wrong:
    """A row of one variable: "NAME=VALUE" at rank 1."""
    name, _, value = text.partition("=")
    return Wrong(f"`{text}`", words, {name: value}, everywhere=everywhere)


#: By what is wrong.
WRONG: dict[str, Wrong] = {
    "ports that are none": _variable("TWEED_PORTS=many", ["29600-29699", "'many'", "TWEED_PORTS"]),
    "ports in the wrong order": _variable("TWEED_PORTS=29699-29600", ["29600-29699", "TWEED_PORTS"]),
    "too few ports": Wrong(
        "`TWEED_PORTS=29655` for two ranks of a host",
        [
            "all ports from 29655 to 29655 are in use",
            "each rank of a host needs one",
            "Give TWEED_PORTS more",
        ],
        everywhere={"TWEED_PORTS": "29655"},
    ),
    "an unknown transport": _variable("TWEED_TRANSPORT=pigeon", ["transport", "pigeon", "auto, shm, tcp"]),
    "an unknown congestion control": _variable(
        "TWEED_CONGESTION=none", ["'none'", "available are", "modprobe"]
    ),
    "no number of streams": _variable("TWEED_STREAMS=some", ["TWEED_STREAMS", "whole number", "some"]),
    "no streams": _variable("TWEED_STREAMS=0", ["streams must be at least 1"]),
    "a deadline in words": _variable("TWEED_DEADLINE=soon", ["TWEED_DEADLINE", "seconds", "soon"]),
    "a deadline in the past": _variable("TWEED_DEADLINE=-1", ["deadline must be", "above 0", "-1"]),
    "an unknown binding": _variable("TWEED_BINDING=rust", ["binding", "rust", "native, python"]),
    "no switch": _variable("TWEED_WIRE_ONLY=yes", ["TWEED_WIRE_ONLY", "0 or 1", "yes"]),
    "no other switch": _variable("TWEED_DIAL_ONLY=maybe", ["TWEED_DIAL_ONLY", "0 or 1", "maybe"]),
    "metrics in words": _variable("TWEED_METRICS=often", ["TWEED_METRICS", "seconds", "often"]),
    "an unknown level of the log": _variable("TWEED_LOG=loud", ["TWEED_LOG must be debug, info", "'loud'"]),
    "a misspelt variable": _variable(
        "TWEED_DEADLNE=60", ["TWEED_DEADLNE is set", "did you mean TWEED_DEADLINE?", "unset TWEED_DEADLNE"]
    ),
    "a secret that is not there": _variable("TWEED_SECRET_FILE=/no/secret", ["/no/secret", "No such file"]),
    "a secret file that others can read": _variable(
        "TWEED_SECRET_FILE=/etc/passwd", ["/etc/passwd can be read by others", "chmod 600 /etc/passwd"]
    ),
    "a secret that is too short": _variable("TWEED_SECRET=me", ["secret", "openssl rand"]),
    "a secret where the other has none": Wrong(
        "`TWEED_SECRET` at one rank alone", ["secret", "TWEED_SECRET"], _SECRET
    ),
    "another secret than the other": Wrong(
        "another `TWEED_SECRET` at one rank",
        ["wrong secret", "give all ranks the same TWEED_SECRET"],
        {"TWEED_SECRET": 40 * "t"},
        everywhere=_SECRET,
    ),
    "a key file that is a folder": _variable(
        "TWEED_KEY_FILE=/etc", ["the key file /etc is no file", "give the path of one"], **_SECRET
    ),
    "a key file that others can read": _variable(
        "TWEED_KEY_FILE=/etc/passwd", ["key file /etc/passwd can be read by others", "chmod 600"], **_SECRET
    ),
    "a key file in a folder that is not there": _variable(
        "TWEED_KEY_FILE=/no/key", ["/no/key", "No such file"], **_SECRET
    ),
    "a missing interface": _variable(
        "TWEED_HOST=eth7", ["must be an IP address", "'eth7'", "ip -brief address", "TWEED_HOST"]
    ),
    "an address that is another's": _variable("TWEED_HOST=192.0.2.1", ["192.0.2.1", "TWEED_HOST"]),
    "a port of Prometheus that is none": _variable("TWEED_PROMETHEUS=here", ["here", "PORT"]),
    "a collector that is none": _variable("TWEED_OPENTELEMETRY=here", ["here", "http://HOST:PORT"]),
    "a negative server": _variable("TWEED_SERVER=-1", ["server must be a rank"]),
    "a server that is not there": _variable("TWEED_SERVER=7", ["server", "7"]),
    "another server than the other": Wrong(
        "`Options(server=0)` at one rank alone",
        ["rank 0", "rank 1", "server", "the same"],
        options=Options(server=0),
    ),
    "another world size": Wrong(
        "`WORLD_SIZE=3` where rank 0 has 2",
        ["was told of 2 ranks", "rank 1 on", "of 3", "one WORLD_SIZE"],
        sizes=(2, 3),
    ),
    "a smaller world size": Wrong(
        "`WORLD_SIZE=2` where rank 0 has 3",
        ["was told of 3 ranks", "rank 1 on", "of 2", "one WORLD_SIZE"],
        sizes=(3, 2),
    ),
    "another version": Wrong(
        "tweed 0.0.9 at one rank",
        ["rank 1 on", "0.0.9", "install one version", "pip install"],
        lie=_other_version,
    ),
    "a clock that is behind": Wrong(
        "a clock that is five minutes behind",
        ["the clock of rank 0", "ahead of that of rank 1", "timedatectl set-ntp true"],
        lie=_late_clock,
    ),
    "a clock that is ahead": Wrong(
        "a clock that is five minutes ahead",
        ["the clock of rank 1", "ahead of that of rank 0", "timedatectl set-ntp true"],
        lie=_early_clock,
    ),
    "another strategy": Wrong(
        '`tweed.attach(..., "local_steps:8")` where rank 0 has "local_steps:4"',
        ["do not hold the same model and settings", "rank 0 has", "rank 1 has", "LocalSteps"],
        strategy="local_steps:8",
    ),
    "a strategy with a transport": Wrong(
        '`tweed.attach(..., "ltp")` where rank 0 has "local_steps:4"',
        ["do not hold the same model and settings", "rank 0 has", "rank 1 has", "Ltp"],
        strategy="ltp",
    ),
    "no route": Wrong(
        "no route to the other host",
        ["cannot be reached from rank 1", "no route leads there", "ip route get", "ip -brief address"],
        network=("ip route flush dev tweed0",),
        everywhere=_SECRET,
    ),
    "an MTU that is too small": Wrong(
        "a tunnel whose MTU is smaller than the interface's",
        ["short messages from rank 0", "long packets are lost", "tcp_mtu_probing=1", "mtu 1280"],
        network=(
            "ethtool -K tweed0 gro off tso off gso off",
            "nft add table inet tunnel",
            "nft add chain inet tunnel in { type filter hook input priority 0; }",
            "nft add rule inet tunnel in meta length > 1200 drop",
        ),
        everywhere=_SECRET,
    ),
    "a firewall both ways": Wrong(
        "firewalls that let neither host call the other",
        ["cannot be reached", "sudo ufw allow proto tcp from", "to any port 29600"],
        network=(
            "nft add table inet wall",
            "nft add chain inet wall in { type filter hook input priority 0; }",
            "nft add rule inet wall in tcp flags & (syn | ack) == syn drop",
            "nft add chain inet wall out { type filter hook output priority 0; }",
            "nft add rule inet wall out tcp flags & (syn | ack) == syn drop",
        ),
        everywhere={**_SECRET, "TWEED_PORTS": "29600-29699", "TWEED_DEADLINE": "5"},
    ),
}


def meets(rank: int, size: int, case: str, store: str) -> Told:
    """Rank 1 has other settings than it should have."""
    row = WRONG[case]
    os.environ |= row.everywhere
    if rank == 1:
        os.environ |= row.environment
        if row.lie:
            row.lie()
    began = time.monotonic()
    try:
        dist.init_process_group(
            "tweed",
            store=dist.FileStore(store, size),
            rank=rank,
            world_size=row.sizes[rank],
            pg_options=(row.options if rank == 1 else None) or Options(),
            timeout=timedelta(seconds=30),
        )
        if row.strategy:
            model = torch.nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            tweed.attach(model, optimizer, row.strategy if rank == 1 else "local_steps:4")
    except TweedError as error:
        return Told(str(error), time.monotonic() - began)
    return Told("", time.monotonic() - began)


def told(case: str, folder: Path) -> list[Told]:
    """What ranks 0 and 1 are told."""
    row = WRONG[case]
    place = nullcontext() if row.network is None else opened(Network(rate_bits=1e9), 2)
    with place as bed:
        for command in row.network or ():
            assert isinstance(bed, LiveNetwork)
            subprocess.run(bed.command(1, *command.split()), check=True)
        with Ranks(meets, 2, case, str(folder / "store"), bed=bed) as ranks:
            return ranks.join(60)


def _page() -> str:
    """Runs all rows, and writes what rank 1 is told, without what is another at each run."""
    lines = []
    for case, row in WRONG.items():
        with tempfile.TemporaryDirectory() as folder:
            text = told(case, Path(folder))[1].text
        text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "HOST", text)
        text = re.sub(r"process \d+", "process PID", re.sub(r"(10\.77\.0\.\d+):\d+", r"\1:PORT", text))
        lines.append(f"| {case} | {row.setting} | {text} |".replace("\n", " ").replace("< ", "\\< "))
        print(lines[-1], file=sys.stderr)
    return _HEAD + "\n".join(lines) + "\n" + _TAIL


#: The page around the rows.
_HEAD = """# Wrong settings

A wrong setting at one rank ends all ranks within 15 seconds, and each prints which rank is wrong and what to
do. The table has what is printed at the rank with the wrong setting; the other ranks print the same after
`group '0' cannot be made: rank 1 has failed: process PID on HOST:`. `python -m tests.faults.settings` writes
this page, and `pytest tests/faults/test_settings.py` tries every row.

| wrong | setting | what is printed |
|---|---|---|
"""
_TAIL = """
## What takes longer

- With torch's own rendezvous (`MASTER_ADDR`, `MASTER_PORT`) ranks first connect to torch's store, before
  any code of tweed runs. If the store cannot be reached, or rank 0 has a `WORLD_SIZE` above the number of
  ranks, torch waits for its own timeout. `tweed launch` and torchrun set both at all ranks, and
  `tweed doctor`, which `tweed launch` runs first, gives up after 15 seconds.
- A firewall that blocks one direction only does no harm: ranks connect in the other. If it blocks both, each
  end prints what to type after ten seconds, or a quarter of `TWEED_DEADLINE`; it fails when its timeout
  or deadline has passed. The row above has `TWEED_DEADLINE=5`; see [two-machines.md](two-machines.md).
- An MTU that is too small is detected between rank 0 and up to four other ranks, from rank 0's side,
  during the rendezvous. `tweed doctor` measures all pairs, in both directions.
- A variable that begins with `TWEED_` and resembles none that tweed knows may belong to your program: rank
  0 warns of it and goes on.
"""

if __name__ == "__main__":
    PAGE.write_text(_page())
