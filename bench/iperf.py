"""What four flows of TCP move between two namespaces, by iperf3: the measure of what a link can carry."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from bench.run import Row
from tweed.testbed import LiveNetwork

_FLOWS = 4
_SLOW_START_S = 1  # left out of iperf3's figures by iperf3 itself
_PATIENCE_S = 20


def flows(bed: LiveNetwork, seconds: int, when: str) -> Iterator[Row]:
    """Four flows from rank 0 to rank 1, and then four each way at once. Nothing for 0 seconds.

    Without iperf3, a row that says so.
    """
    if not seconds:
        return
    if shutil.which("iperf3") is None:
        yield {"part": "iperf3", "when": when, "why": "iperf3 is not installed"}
        return
    for way, option in (("one", []), ("both", ["--bidir"])):
        report = _report(bed, seconds, option)
        yield {"part": "iperf3", "when": when, "way": way, "bits_per_s": rates(report)}


def rates(report: dict[str, Any]) -> list[float]:
    """Bits of payload per second that arrived, by direction, of iperf3's JSON."""
    ends = (report["end"].get(name) for name in ("sum_received", "sum_received_bidir_reverse"))
    return [round(end["bits_per_second"]) for end in ends if end]


def _report(bed: LiveNetwork, seconds: int, option: list[str]) -> dict[str, Any]:
    words = ["iperf3", "--client", bed.hosts[1].address, "--parallel", str(_FLOWS), *option]
    words += ["--time", str(seconds), "--omit", str(_SLOW_START_S), "--json"]
    patience = seconds + _SLOW_START_S + _PATIENCE_S
    with server(bed, 1, patience):
        said = subprocess.run(
            bed.command(0, *words), check=True, capture_output=True, text=True, timeout=patience
        )
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def server(bed: LiveNetwork, rank: int, patience_s: int, *options: str) -> AbstractContextManager[None]:
    """A server at `rank` for one client."""
    words = ("iperf3", "--server", "--one-off", "--forceflush", *options)
    return listening(bed, rank, patience_s, *words)


@contextmanager
def listening(bed: LiveNetwork, rank: int, patience_s: int, *words: str) -> Iterator[None]:
    """Runs a program, `words`, that waits at `rank` for another's; within, it listens.

    It is there for one job, and ends by itself after `patience_s`, whoever started it.
    """
    command = bed.command(rank, "timeout", str(patience_s), *words)
    silent = subprocess.DEVNULL  # iperf3 complains when it is ended
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=silent, text=True) as process:
        assert process.stdout is not None
        try:
            next(line for line in process.stdout if "listening" in line)
            yield
        finally:
            process.terminate()
