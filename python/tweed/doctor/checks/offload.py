"""Segmentation offload: without it a core spends its time on cutting packets."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from tweed.doctor.checks import interfaces
from tweed.doctor.finding import Finding, Level
from tweed.doctor.system import read

_NAME = "tcp-segmentation-offload"


@dataclass(frozen=True, slots=True)
class Facts:
    """The interface looked at, and whether it cuts packets; None: not known, for the reason `why`."""

    interface: str | None
    on: bool | None = None
    why: str = ""


def gather() -> Facts:
    """Asks ethtool about the likeliest interface."""
    found = interfaces.candidates(interfaces.seen(), interfaces.default_route(read("/proc/net/route") or ""))
    if not found:
        return Facts(None, None, "there is no interface but loopback")
    program = shutil.which(
        "ethtool", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    )
    if program is None:
        return Facts(found[0].name, None, "ethtool is not installed")
    command = [program, "-k", found[0].name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2)
    return read_features(found[0].name, done.stdout, done.stderr)


def read_features(name: str, text: str, error: str = "") -> Facts:
    """Reads what `ethtool -k` says."""
    rows = dict(line.strip().partition(": ")[::2] for line in text.splitlines())
    if _NAME not in rows:
        return Facts(name, None, error.strip() or "ethtool does not tell")
    return Facts(name, rows[_NAME].startswith("on"))


def judge(facts: Facts) -> Iterator[Finding]:
    """Off is slow, and sometimes meant."""
    if facts.on is None:
        yield Finding(Level.OK, f"not looked at: {facts.why}")
    elif facts.on:
        yield Finding(Level.OK, f"{facts.interface} cuts packets by itself")
    else:
        what = f"{facts.interface} leaves the cutting of packets to the processor: more work per byte"
        yield Finding(
            Level.NOTE, what, f"if the card can do it: sudo ethtool -K {facts.interface} tso on gso on"
        )
