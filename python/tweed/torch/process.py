"""Which process somebody is, and whether it has ended: as far as it can be seen from here."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process of some machine. Two are the same one exactly when they are equal."""

    pid: int
    # When it started, in the kernel's ticks since the boot: numbers of processes are used again.
    started: int
    # The namespace in which its number counts.
    pids: str
    boot: str
    host: str

    @classmethod
    def here(cls) -> Process:
        """This one."""
        pid, (_, started) = os.getpid(), _stat(os.getpid()) or ("", 0)
        return cls(pid, started, *_machine(), socket.gethostname())

    @classmethod
    def of_descriptor(cls, descriptor: bytes) -> Process:
        """The one that gave this descriptor (`Node.descriptor`)."""
        known = json.loads(descriptor)
        return cls(*(known.get(name, "") for name in ("pid", "started", "pids", "boot", "host")))

    def encode(self) -> str:
        """As text for a store."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Process:
        """The inverse of `encode`."""
        return cls(**json.loads(text))

    def is_visible(self) -> bool:
        """It would be seen from here, if it ran."""
        return (self.pids, self.boot) == _machine()

    def has_ended(self) -> bool:
        """It is known to run no more. Of processes of other machines nothing is known."""
        if not self.is_visible():
            return False
        found = _stat(self.pid)
        return _is_free(self.pid) if found is None else found[0] in "ZX" or found[1] != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _machine() -> tuple[str, str]:
    """The namespace of process numbers, and the boot."""
    pids = boot = ""
    with contextlib.suppress(OSError):
        pids = os.readlink("/proc/self/ns/pid")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return pids, boot


def _stat(pid: int) -> tuple[str, int] | None:
    """State and start of a process, if it is there and not hidden from us."""
    with contextlib.suppress(OSError, IndexError):
        # The name before it stands in brackets, and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return fields[0], int(fields[19])
    return None


def _is_free(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
