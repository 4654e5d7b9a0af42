"""Shared memory: tweed's own (a memfd as long as the machine's memory) and /dev/shm, for data loaders."""

from __future__ import annotations

import errno
import mmap
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tweed.doctor.finding import Finding, Level
from tweed.doctor.system import read

_SMALL_SHM_BYTES = 2**30
_NORESERVE = 0x4000  # MAP_NORESERVE of asm-generic/mman.h, which Python 3.11 does not name


@dataclass(frozen=True, slots=True)
class Facts:
    """Bytes of memory, of the control group's limit (None: none), of /dev/shm and of it free (None: none).

    `error`: why a mapping as long as the memory cannot be made, with the `limits` that may be the reason.
    `ahead_bytes`: what each peer may have sent ahead, in each group (None: the engine cannot be loaded).
    """

    ram_bytes: int
    cgroup_bytes: int | None
    shm_bytes: int | None
    shm_free_bytes: int
    error: str | None = None
    limits: tuple[str, ...] = ()
    ahead_bytes: int | None = None


def gather() -> Facts:
    """Makes a mapping as tweed does, touches nothing of it, and lets it go."""
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    error = _try(ram)
    shm, free = _shm()
    limits = () if error is None else _limits(ram)
    return Facts(ram, _cgroup(ram), shm, free, error, limits, _ahead_bytes())


def _ahead_bytes() -> int | None:
    try:
        from tweed._core import Node
    except ImportError:
        return None  # `versions` says why
    return Node.MOST_AHEAD_BYTES


def _try(length: int) -> str | None:
    try:
        file = os.memfd_create("tweed-doctor")
        try:
            os.ftruncate(file, length)
            flags = mmap.MAP_SHARED | _NORESERVE
            mmap.mmap(file, length, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE).close()
        finally:
            os.close(file)
    except (OSError, ValueError) as problem:
        name = errno.errorcode.get(getattr(problem, "errno", None) or 0, "")
        return f"{name} {problem}".strip()
    return None


def _limits(length: int) -> tuple[str, ...]:
    named = {"-v": resource.RLIMIT_AS, "-f": resource.RLIMIT_FSIZE}
    soft = {flag: resource.getrlimit(limit)[0] for flag, limit in named.items()}
    return tuple(
        flag for flag, value in soft.items() if value not in (resource.RLIM_INFINITY,) and value < 2 * length
    )


def _cgroup(ram: int) -> int | None:
    own = (read("/proc/self/cgroup") or "").splitlines()
    path = next((line.split("::")[1] for line in own if line.startswith("0::")), "/")
    folders = [Path("/sys/fs/cgroup" + path), *Path("/sys/fs/cgroup" + path).parents]
    texts = [read(str(folder / "memory.max")) for folder in folders]
    texts.append(read("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
    numbers = [int(text) for text in texts if text and text.isdigit() and int(text) < ram]
    return min(numbers, default=None)


def _shm() -> tuple[int | None, int]:
    try:
        stat = os.statvfs("/dev/shm")
    except OSError:
        return None, 0
    return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize


def judge(facts: Facts) -> Iterator[Finding]:
    """A mapping that cannot be made; limits that strike while training."""
    if facts.error is not None:
        yield Finding(Level.ERROR, f"tweed's shared memory cannot be made: {facts.error}", _fix(facts))
    if facts.cgroup_bytes is not None:
        what = (
            f"this process may use {_gib(facts.cgroup_bytes)} of the machine's {_gib(facts.ram_bytes)}; "
            "shared memory counts, and who goes beyond is killed without a word"
        )
        yield Finding(Level.NOTE, what, "if ranks die of SIGKILL: raise the limit (docker run --memory=...)")
    if facts.ahead_bytes is not None:
        what = (
            "what a rank that is behind holds for operations to come: at most "
            f"{_mib(facts.ahead_bytes)} from each peer, in each group, over TCP or LTP"
        )
        yield Finding(Level.OK, what)
    if facts.shm_bytes is None:
        what = "there is no /dev/shm: workers of torch's DataLoader need it (tweed does not)"
        yield Finding(Level.WARNING, what, "sudo mount -t tmpfs -o size=50% tmpfs /dev/shm")
    elif min(facts.shm_bytes, facts.shm_free_bytes) < _SMALL_SHM_BYTES:
        what = (
            f"/dev/shm has {_mib(facts.shm_free_bytes)} free of {_mib(facts.shm_bytes)}: too little for "
            "DataLoader workers, which die of SIGBUS (tweed does not use it)"
        )
        fix = "sudo mount -o remount,size=2g /dev/shm; for a container: docker run --shm-size=2g"
        yield Finding(Level.WARNING, what, fix)
    elif facts.error is None:
        what = f"{_gib(facts.ram_bytes)} can be mapped; /dev/shm has {_gib(facts.shm_free_bytes)} free"
        yield Finding(Level.OK, what)


def _fix(facts: Facts) -> str:
    if facts.limits:
        return "in the shell that starts the ranks: " + "; ".join(
            f"ulimit {flag} unlimited" for flag in facts.limits
        )
    return "sudo sysctl -w vm.overcommit_memory=1; in a container, allow it the system call memfd_create"


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


def _mib(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"
