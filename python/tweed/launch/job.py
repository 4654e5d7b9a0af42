"""What is to run where, and what each rank is given. Pure."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tweed.errors import UsageError
from tweed.torch.options import Options

#: The launcher writes to each agent so often; one that has heard nothing for so long ends its ranks, as the
#: launcher's host is gone, or the way to it.
BEAT_S, SILENCE_S = 10.0, 60.0
#: A message between the two is shorter: one line of a rank, escaped, or what all ranks of a host are given.
MESSAGE_BYTES = 2**24
#: A host of this name is this machine, reached without ssh.
LOCAL = "localhost"
#: What differs by rank or by host, or is secret: never taken over from the launcher's own environment.
_OWN = {"TWEED_HOST", "TWEED_SECRET", "TWEED_SECRET_FILE", "TWEED_TESTBED", "TWEED_PORTS", "TWEED_KEY_FILE"}
#: ssh never asks, as nobody could answer for several hosts at once; it notices in 30 s that a host is gone;
#: it leaves no process behind that would hold its streams open.
_SSH = (
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=10",
    "ServerAliveCountMax=3",
    "ControlMaster=no",
)


@dataclass(frozen=True, slots=True)
class Host:
    """A host as ssh knows it, and the IP address at which other hosts reach it; `None`: not known yet."""

    name: str
    address: str | None = None

    @property
    def local(self) -> bool:
        """It is this machine, and needs no ssh."""
        return self.name == LOCAL

    @classmethod
    def parse(cls, text: str) -> Host:
        """Reads "NAME" or "NAME=ADDRESS". Raises: UsageError."""
        name, sign, address = text.partition("=")
        if not name or name.startswith("-"):
            raise UsageError(f"{text!r} is no host: give NAME or USER@NAME, as to ssh, or NAME=ADDRESS")
        if not sign:
            return cls(name)
        try:
            return cls(name, str(ipaddress.ip_address(address)))
        except ValueError:
            raise UsageError(
                f"{text!r}: {address!r} is no IP address, and names are not looked up; give {name}=ADDRESS, "
                "at which the other hosts reach it"
            ) from None


@dataclass(frozen=True, slots=True)
class Job:
    """What `tweed launch` is asked for.

    Args:
      hosts: rank 0 is on the first.
      words: a script of Python and its arguments, or "-m", a module and its arguments.
      secret: what admits to the job.
      ranks_per_host: as many on each.
      python: the interpreter on all hosts.
      folder: where ranks work, on all hosts.
      ports: for `TWEED_PORTS`.
      port: of torch's store, on the first host.
      environment: more variables for all ranks.

    Raises: UsageError for what cannot be; says what to type.
    """

    hosts: tuple[Host, ...]
    words: tuple[str, ...]
    secret: str = field(repr=False)
    ranks_per_host: int
    python: str
    folder: str
    ports: str
    port: int
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.hosts:
            raise UsageError("no host is given: tweed launch HOST1 HOST2 -- script.py")
        if not self.words:
            raise UsageError("nothing is given to run: tweed launch HOST1 HOST2 -- script.py")
        names = [host.name for host in self.hosts]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise UsageError(f"{doubled[0]} is given twice; for more ranks on a host give --ranks-per-host")
        found = Options(ports=self.ports).ports_range()
        first, last = found if found is not None else (0, 2**16)
        if last - first + 1 < self.ranks_per_host:
            raise UsageError(
                f"--ports {self.ports} are {last - first + 1}, and each of the {self.ranks_per_host} ranks "
                "of a host needs one: give more, such as --ports 29600-29699, and let them through firewalls"
            )

    @property
    def size(self) -> int:
        """The number of ranks on all hosts."""
        return len(self.hosts) * self.ranks_per_host

    @property
    def script(self) -> str | None:
        """The script, which must be there on every host; `None` for a module."""
        return None if self.words[0].startswith("-") else self.words[0]

    def on(self, number: int) -> range:
        """The ranks of a host."""
        return range(number * self.ranks_per_host, (number + 1) * self.ranks_per_host)

    def host_of(self, rank: int) -> Host:
        """Where a rank is."""
        return self.hosts[rank // self.ranks_per_host]

    def doctor(self) -> Job:
        """The visit of `tweed doctor` before it: one rank per host."""
        return replace(self, words=("-m", "tweed", "doctor", "--json", "--wait", "15"), ranks_per_host=1)

    def order(self, number: int) -> dict[str, Any]:
        """What the agent of a host is told to run. All addresses must be known by now."""
        ranks = [{"rank": rank, "environment": self._environment(rank)} for rank in self.on(number)]
        return {"folder": self.folder, "words": [self.python, *self.words], "ranks": ranks}

    def _environment(self, rank: int) -> dict[str, str]:
        local, count = rank % self.ranks_per_host, self.ranks_per_host
        host, first = self.host_of(rank), self.hosts[0]
        assert host.address is not None
        assert first.address is not None
        return {
            # As torchrun: ranks of one host share its cores, and threads that wait for each other spin.
            **({"OMP_NUM_THREADS": "1"} if count > 1 else {}),
            "PYTHONUNBUFFERED": "1",
            **self.environment,
            "RANK": str(rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(count),
            "GROUP_RANK": str(rank // count),
            "MASTER_ADDR": first.address,
            "MASTER_PORT": str(self.port),
            "TWEED_HOST": host.address,
            "TWEED_SECRET": self.secret,
            "TWEED_SECRET_FILE": "",  # one of the host's own would have to agree
            "TWEED_PORTS": self.ports,
        }


def passed_on(environment: Mapping[str, str], more: Sequence[str]) -> dict[str, str]:
    """Variables for all ranks: tweed's of the launcher that hold everywhere, and "NAME=VALUE" of `more`.

    Raises: UsageError for what is no NAME=VALUE.
    """
    found = {
        name: text for name, text in environment.items() if name.startswith("TWEED_") and name not in _OWN
    }
    for text in more:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"--env {text}: give NAME=VALUE")
        found[name] = value
    return found


def command(host: Host, python: str, ssh: str) -> list[str]:
    """What starts the agent of a host. Nothing in it is secret: `ps` shows it to all users.

    Args:
      ssh: a command, with options if need be, such as "ssh -p 2222"; they overrule those given here.

    Raises: UsageError for a command that is none.
    """
    agent = [python, "-P", "-m", "tweed.launch.agent", f"{SILENCE_S:.0f}"]
    if host.local:
        return agent
    try:
        words = shlex.split(ssh)
    except ValueError as error:
        raise UsageError(f"--ssh {ssh!r} is no command: {error}") from None
    if not words:
        raise UsageError("--ssh is empty: give a command, such as --ssh 'ssh -p 2222'")
    return [*words, "-T", *(word for option in _SSH for word in ("-o", option)), host.name, shlex.join(agent)]
