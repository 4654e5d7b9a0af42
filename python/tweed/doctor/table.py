"""The checks of one host. A new one is a file in `checks/` and a row here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from tweed.doctor.checks import (
    clock,
    compiler,
    environment,
    files,
    hostname,
    interfaces,
    memory,
    offload,
    open_ports,
    ports,
    rendezvous,
    secret,
    tcp,
    testbed,
    udp,
    versions,
)
from tweed.doctor.finding import Finding, Level


@dataclass(frozen=True, slots=True)
class Check:
    """A check: what it looks at, how, and what it makes of that.

    Attributes:
      about: one line for the list of checks.
      gather: looks at the host; may fail.
      judge: pure; takes what `gather` returned.

    Example:
      >>> [check.name for check in CHECKS][:2]
      ['versions', 'compiler']
    """

    name: str
    about: str
    gather: Callable[[], Any]
    judge: Callable[[Any], Iterable[Finding]]


#: What each looks at, in one line.
_ABOUT: dict[ModuleType, str] = {
    versions: "tweed, torch and Python; variables that make torch pass tweed by",
    compiler: "the C++ backend: compiled already, or does a compiler work",
    environment: "variables of torchrun, torch and tweed: half sets, bad values, misspelt names",
    secret: "a secret where other hosts may connect; who can read its file",
    interfaces: "which address other hosts reach; `TWEED_HOST`, `GLOO_SOCKET_IFNAME`, MTU",
    hostname: "the host's name is found, and is not loopback",
    ports: "sockets can be opened; the port where ranks meet is free",
    open_ports: "ports that runs of this user hold open: whose, what for, and to whom",
    rendezvous: "`MASTER_ADDR` leads to rank 0; torch's store is open to all",
    memory: "tweed's shared memory, the control group's limit, `/dev/shm`",
    files: "how many files may be open",
    tcp: "windows for long ways; congestion control",
    udp: "buffers for the loss-tolerant transport, over UDP",
    offload: "the network card cuts packets by itself",
    clock: "the clock is kept in step",
    testbed: "networks for `--network` can be built",
}
#: All of them, in the order in which they are run.
CHECKS: tuple[Check, ...] = tuple(
    Check(check.__name__.rpartition(".")[2], about, check.gather, check.judge)
    for check, about in _ABOUT.items()
)


def examine(checks: Sequence[Check] = CHECKS) -> list[Finding]:
    """Runs `checks` on this host. One that cannot look says why, and the others go on.

    Cost: some 0.1 s.

    Example:
      >>> free = Check("demo", "nothing at all", lambda: 7, lambda facts: [Finding(Level.OK, f"saw {facts}")])
      >>> [(found.subject, found.what) for found in examine([free])]
      [('demo', 'saw 7')]
    """
    return [finding for check in checks for finding in _run(check)]


def _run(check: Check) -> list[Finding]:
    try:
        found = list(check.judge(check.gather()))
    except Exception as error:  # noqa: BLE001 a host where looking fails is what a doctor is called to
        what = f"could not look: {type(error).__name__}: {error}"
        found = [Finding(Level.NOTE, what, "please report it, with this line")]
    return [replace(finding, subject=check.name) for finding in found]
