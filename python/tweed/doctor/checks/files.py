"""Open files: every link holds some."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass

from tweed.doctor.finding import Finding, Level

_PER_PEER = 6  # four streams, memory and a listener of each peer
_OWN = 200  # torch, Python, data loaders
_PEERS = 100


@dataclass(frozen=True, slots=True)
class Facts:
    """Limits of open files, as they are and as far as they may be raised; -1: none."""

    soft: int
    hard: int


def gather() -> Facts:
    """Reads this process's limits."""
    return Facts(*resource.getrlimit(resource.RLIMIT_NOFILE))


def judge(facts: Facts) -> Iterator[Finding]:
    """Too few files for a hundred peers."""
    needed = _OWN + _PER_PEER * _PEERS
    if facts.soft in (-1, resource.RLIM_INFINITY) or facts.soft >= needed:
        count = "any number of" if facts.soft == -1 else facts.soft
        yield Finding(Level.OK, f"{count} files may be open at once")
        return
    peers = max(0, (facts.soft - _OWN) // _PER_PEER)
    what = f"only {facts.soft} files may be open at once: enough for about {peers} peers"
    fix = "in the shell that starts the ranks: ulimit -n 65536"
    if 0 <= facts.hard < needed:
        fix = (
            "echo '* - nofile 65536' | sudo tee -a /etc/security/limits.conf, then log in again; "
            "for a container: docker run --ulimit nofile=65536"
        )
    yield Finding(Level.WARNING if peers < 8 else Level.NOTE, what, fix)
