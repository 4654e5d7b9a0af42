"""The checks of one host. A new one is a file in `checks/` and a row here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
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
    """

    name: str
    about: str
    gather: Callable[[], Any]
    judge: Callable[[Any], Iterable[Finding]]


CHECKS: tuple[Check, ...] = (
    Check(
        "versions",
        "tweed, torch and Python; variables that make torch pass tweed by",
        versions.gather,
        versions.judge,
    ),
    Check(
        "compiler",
        "the C++ backend: compiled already, or does a compiler work",
        compiler.gather,
        compiler.judge,
    ),
    Check(
        "environment",
        "variables of torchrun, torch and tweed: half sets, bad values, misspelt names",
        environment.gather,
        environment.judge,
    ),
    Check(
        "secret", "a secret where other hosts may connect; who can read its file", secret.gather, secret.judge
    ),
    Check(
        "interfaces",
        "which address other hosts reach; `TWEED_HOST`, `GLOO_SOCKET_IFNAME`, MTU",
        interfaces.gather,
        interfaces.judge,
    ),
    Check("hostname", "the host's name is found, and is not loopback", hostname.gather, hostname.judge),
    Check("ports", "sockets can be opened; the port where ranks meet is free", ports.gather, ports.judge),
    Check(
        "rendezvous",
        "`MASTER_ADDR` leads to rank 0; torch's store is open to all",
        rendezvous.gather,
        rendezvous.judge,
    ),
    Check(
        "memory", "tweed's shared memory, the control group's limit, `/dev/shm`", memory.gather, memory.judge
    ),
    Check("files", "how many files may be open", files.gather, files.judge),
    Check("tcp", "windows for long ways; congestion control", tcp.gather, tcp.judge),
    Check("udp", "buffers for the coming UDP transport", udp.gather, udp.judge),
    Check("offload", "the network card cuts packets by itself", offload.gather, offload.judge),
    Check("clock", "the clock is kept in step", clock.gather, clock.judge),
    Check("testbed", "networks for `--network` can be built", testbed.gather, testbed.judge),
)


def examine(checks: Sequence[Check] = CHECKS) -> list[Finding]:
    """Runs `checks` on this host. One that cannot look says why, and the others go on."""
    return [finding for check in checks for finding in _run(check)]


def _run(check: Check) -> list[Finding]:
    try:
        found = list(check.judge(check.gather()))
    except Exception as error:  # noqa: BLE001 a host where looking fails is what a doctor is called to
        what = f"could not look: {type(error).__name__}: {error}"
        found = [Finding(Level.NOTE, what, "please report it, with this line")]
    return [replace(finding, subject=check.name) for finding in found]
