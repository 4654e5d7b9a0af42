"""The process of the link emulator (`crates/emu`): started, changed, asked, ended.

It runs in the hub's namespace and reads requests from a pipe. When the launcher closes the pipe or is gone,
it leaves, as the processes do that hold namespaces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tweed.errors import NoTestbed
from tweed.testbed.counters import Counters
from tweed.testbed.link import Direction
from tweed.testbed.names import HUB, port
from tweed.testbed.namespaces import Namespaces
from tweed.testbed.network import Network

_PROGRAM = "import sys; from tweed import _core; _core.emulate(sys.argv[1], 0, 1)"

#: Of all packets, the share that may be late without a word.
_MOST_LATE = 0.01


@dataclass(frozen=True, slots=True)
class Paths:
    """What an emulator joins.

    Attributes:
      ports: interfaces in the hub's namespace; the address of a frame ends with its port, plus one.
      up, down: by port, what strikes packets from its host and to it.
      offload: see `Network`.
    """

    ports: Sequence[str]
    up: Sequence[Direction]
    down: Sequence[Direction]
    offload: bool = False


def paths(network: Network, size: int) -> Paths:
    """From every host to every other, through one hub."""
    up, down = ([network.direction(rank, up) for rank in range(size)] for up in (True, False))
    return Paths([port(rank) for rank in range(size)], up, down, network.offload)


@dataclass(frozen=True, slots=True)
class Report:
    """What the emulator has done.

    Attributes:
      hosts: by rank, lost, duplicated and reordered packets.
      packets: how many it has judged.
      missed_packets: how many it did not keep up with.
      late_packets: how many it sent more than a millisecond after they were due.
    """

    hosts: tuple[Counters, ...]
    packets: int = 0
    missed_packets: int = 0
    late_packets: int = 0

    @property
    def doubts(self) -> list[str]:
        """Why what was measured over it may not count."""
        found = []
        if self.missed_packets:
            found.append(f"the link emulator did not keep up with {self.missed_packets:,} packets")
        if self.late_packets > _MOST_LATE * self.packets:
            late = f"{self.late_packets:,} of {self.packets:,} packets"
            found.append(f"the link emulator delayed {late} by more than a millisecond too much")
        return found


class Emulator:
    """A running emulator between the hub's ports.

    Args:
      seed: of every draw; the same packets at the same times have the same fate.

    Raises: NoTestbed if it does not start; gives its words.
    """

    def __init__(self, namespaces: Namespaces, paths: Paths, seed: int) -> None:
        settings = {
            "ports": paths.ports,
            "directions": _directions(paths),
            "seed": seed,
            "offload": paths.offload,
        }
        words = namespaces.inside(HUB, sys.executable, "-c", _PROGRAM, json.dumps(settings))
        pipe = subprocess.PIPE
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        # A process group of its own: Ctrl-C is for the launcher.
        self._process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, process_group=0, env=environment
        )
        self._answer()

    @property
    def pid(self) -> int:
        """The emulator's process id."""
        return self._process.pid

    def change(self, paths: Paths) -> None:
        """Links are as in `paths` from now on; packets on their way arrive as before. Ports stay the same."""
        self._ask({"change": _directions(paths)})

    def report(self) -> Report:
        """What it has done so far."""
        return self._ask("count")

    def stop(self) -> None:
        """Ends it; packets on their way are lost. May be called again."""
        if self._process.returncode is None:
            self._process.communicate()

    def _ask(self, request: Any) -> Report:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # its last words say why
        return self._answer()

    def _answer(self) -> Report:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            error = self._process.communicate()[1].strip().rpartition("\n")[2]
            raise NoTestbed(f"the link emulator is gone: {error or self._process.returncode}")
        return _report(json.loads(line))


def _directions(paths: Paths) -> dict[str, list[dict[str, float]]]:
    return {"up": [_plain(one) for one in paths.up], "down": [_plain(one) for one in paths.down]}


def _plain(one: Direction) -> dict[str, float]:
    in_bursts = one.loss_ppm - one.lost_by_rule_ppm
    return {
        "delay_us": one.delay_us,
        "jitter_us": one.jitter_us,
        "reorder_ppm": one.reorder_ppm,
        "duplicate_ppm": one.duplicate_ppm,
        "loss_ppm": in_bursts,
        "burst": one.burst,
    }


def _counters(counts: dict[str, int]) -> Counters:
    return Counters(
        lost_packets=counts["lost"],
        duplicated_packets=counts["duplicated"],
        reordered_packets=counts["reordered"],
    )


def _report(counts: dict[str, Any]) -> Report:
    hosts = counts["hosts"]
    return Report(
        hosts=tuple(_counters(host) for host in hosts),
        packets=sum(host["packets"] for host in hosts),
        missed_packets=counts["missed"] + sum(host["overrun"] for host in hosts),
        late_packets=counts["late"],
    )
