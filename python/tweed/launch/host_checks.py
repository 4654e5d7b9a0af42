"""What hosts answer, and which answers keep a job from starting. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tweed import distribution
from tweed.doctor.estimate import Clock
from tweed.doctor.system import loopback
from tweed.launch.job import Host, Job
from tweed.torch.agreement import MOST_APART_S

_SSH_FAILED, _NOT_FOUND = 255, (126, 127)
#: What ssh prints when it cannot connect: a part of it, and what to do.
_REASONS = (
    (
        "Permission denied",
        "it does not take your key: ssh-copy-id {host} (ssh-add, if the key has a passphrase), until "
        "`ssh -o BatchMode=yes {host} true` succeeds",
    ),
    (
        "Host key verification failed",
        "its key is not the known one, or not known yet: `ssh {host} true` once by hand, and compare the key",
    ),
    (
        "Could not resolve hostname",
        "there is no host of that name: check it, or give it a Host entry in ~/.ssh/config",
    ),
    (
        "Connection refused",
        "nothing listens there: sudo systemctl start ssh on {host}; another port: --ssh 'ssh -p PORT'",
    ),
    (
        "No route to host",
        "no way leads there: is it on, and in a network that this one reaches? `ping {host}`",
    ),
    ("Network is unreachable", "no way leads there: `ip route` shows the ways from here"),
    ("timed out", "it does not answer: is it on, and does a firewall between drop port 22? `ping {host}`"),
)


@dataclass(frozen=True, slots=True)
class HostInfo:
    """What the agent of a host has seen.

    Attributes:
      tweed, torch: versions; `None`: not installed.
      folder, script: whether they are there.
      reached: the address at which ssh reached the host, by ssh's own account; `None`: without ssh.
      caller: the address from which it was reached.
      port_taken: why the port of torch's store cannot be had; `None`: it can, or is not to be on this host.
      clock: against the launcher's.
    """

    tweed: str | None
    torch: str | None
    folder: bool
    script: bool
    reached: str | None
    caller: str | None
    port_taken: str | None
    clock: Clock

    @classmethod
    def from_plain(cls, value: dict[str, Any], clock: Clock) -> HostInfo:
        """From an agent's message; what a later version adds is left out."""
        names = ("tweed", "torch", "folder", "script", "reached", "caller", "port_taken")
        return cls(**{name: value[name] for name in names}, clock=clock)


def why_no_agent(host: Host, code: int, printed: str, python: str) -> str:
    """Why there is no agent on a host, and what to do.

    Args:
      code: exit code of ssh; below 0 for a signal.
      printed: what came on its error stream.
    """
    name, last = host.name, printed.strip().splitlines()[-1:]
    found = f" ({last[0].strip()})" if last else ""
    if "No module named 'tweed'" in printed or "No module named tweed" in printed:
        wheel = distribution.install_version("tweed", "VERSION")
        return f"{name}: {python} has no tweed there: {python} -m {wheel}, or give --python PATH"
    if "No module named 'tweed.launch" in printed or "No module named tweed.launch" in printed:
        return (
            f"{name}: its tweed is too old for `tweed launch`: install the version that is here, for {python}"
        )
    if code in _NOT_FOUND:
        return f"{name}: {python} cannot be run there{found}: install it, or give --python PATH"
    if code == _SSH_FAILED and not host.local:
        advice = next((advice for part, advice in _REASONS if part in printed), "try `ssh {host} true`")
        return f"{name}: ssh cannot connect{found}: {advice.format(host=name)}"
    return f"{name}: the agent of `tweed launch` has ended with exit code {code}{found}"


def with_addresses(job: Job, found_hosts: Sequence[HostInfo]) -> Job:
    """The job with all hosts' addresses: given ones, else those at which ssh reached them.

    This machine's is the one that another host was reached from. A job on one host stays on loopback.
    """
    if len(job.hosts) == 1:
        return replace(job, hosts=(replace(job.hosts[0], address=job.hosts[0].address or "127.0.0.1"),))
    callers = [
        host_info.caller for host_info in found_hosts if host_info.caller and not _is_inner(host_info.caller)
    ]
    found = [
        replace(host, address=host.address or host_info.reached or next(iter(callers), None))
        for host, host_info in zip(job.hosts, found_hosts, strict=True)
    ]
    return replace(job, hosts=tuple(found))


def problems(job: Job, found_hosts: Sequence[HostInfo]) -> Iterator[str]:
    """What keeps a job from starting, a line each, with the host and what to do.

    Args:
      job: with its addresses.
      looks: by host.
    """
    for host, host_info in zip(job.hosts, found_hosts, strict=True):
        yield from _of_host(job, host, host_info)
    yield from _of_versions(job, found_hosts)
    yield from _of_clocks(job, found_hosts)


def _of_host(job: Job, host: Host, host_info: HostInfo) -> Iterator[str]:
    if host_info.torch is None:
        advice = f"{job.python} -m pip install 'torch>=2.10'"
        yield f"{host.name}: torch is not installed for {job.python} there: {advice}"
    if not host_info.folder:
        yield f"{host.name}: there is no folder {job.folder}: make it there, or give --folder"
    elif not host_info.script:
        target = f"{host.name}:{job.folder}/"
        yield (
            f"{host.name}: there is no {job.script} in {job.folder}: copy it (scp {job.script} {target}), "
            "or give --folder"
        )
    if host_info.port_taken is not None:
        yield (
            f"{host.name}: port {job.port}, where ranks would meet, is taken ({host_info.port_taken}): end "
            f"who has it (ss -ltnp 'sport = :{job.port}'), or give --master-port {job.port + 1}"
        )
    if len(job.hosts) > 1 and (host.address is None or _is_inner(host.address)):
        how = f"over loopback ({host.address})" if host.address else "without ssh"
        yield (
            f"{host.name}: it was reached {how}, where other hosts do not reach it: give "
            f"{host.name}=ADDRESS; `ip -brief address` there shows its addresses"
        )


def _of_versions(job: Job, found_hosts: Sequence[HostInfo]) -> Iterator[str]:
    for package in ("tweed", "torch"):
        # Builds of one version, such as those for other GPUs, go together.
        found = [(getattr(host_info, package) or "none").partition("+")[0] for host_info in found_hosts]
        if len(set(found)) > 1:
            where = ", ".join(f"{host.name} {text}" for host, text in zip(job.hosts, found, strict=True))
            best = max(found, key=found.count)
            others = [host.name for host, text in zip(job.hosts, found, strict=True) if text != best]
            yield (
                f"hosts have different versions of {package}: {where}; on {', '.join(others)}: "
                f"{job.python} -m {distribution.install_version(package, best)}"
            )


def _of_clocks(job: Job, found_hosts: Sequence[HostInfo]) -> Iterator[str]:
    first = found_hosts[0].clock
    for host, host_info in list(zip(job.hosts, found_hosts, strict=True))[1:]:
        apart = host_info.clock.ahead_s - first.ahead_s
        if abs(apart) - host_info.clock.error_s - first.error_s > MOST_APART_S:
            word = "ahead of" if apart > 0 else "behind"
            yield (
                f"the clock of {host.name} is {abs(apart):.0f} s {word} that of {job.hosts[0].name}: on the "
                "one that is wrong (`date -u` shows it): sudo timedatectl set-ntp true"
            )


def _is_inner(address: str) -> bool:
    """No other host reaches it: loopback, or an address that means something on one link alone."""
    return loopback(address) or "%" in address
