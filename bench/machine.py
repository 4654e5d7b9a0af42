"""The machine that the figures are of."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from pathlib import Path

import torch

from bench.run import Row

_ROOT = Path(__file__).parents[1]
#: Above this load average at the start, others were at work.
IDLE_LOAD = 1.0


def environment() -> Row:
    """What a reader must know to make sense of the figures. No names of hosts or people."""
    return {
        "part": "environment",
        "date": datetime.date.today().isoformat(),
        "tweed": _commit(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "huge_pages": _setting("/sys/kernel/mm/transparent_hugepage/enabled"),
        "huge_pages_shared": _setting("/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load": round(os.getloadavg()[0], 2),
    }


def warning(environment: Row) -> str | None:
    """A sentence about a machine that was not idle; None if it was."""
    if environment["load"] <= IDLE_LOAD:
        return None
    return f"not idle: load average {environment['load']} at the start; figures are not to be trusted"


def file_name(environment: Row) -> str:
    """Date and kind of host, such as `2026-01-31-amd-epyc-2-cores.jsonl`."""
    kind = f"{environment['cpu']} {environment['cores']} cores"
    return f"{environment['date']}-{re.sub('[^a-z0-9]+', '-', kind.lower()).strip('-')}.jsonl"


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty=, changed"]
    try:
        return subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _cpu() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _setting(path: str) -> str:
    """The chosen one of `always [madvise] never`."""
    try:
        found = re.search(r"\[(.*?)\]", Path(path).read_text())
    except OSError:
        return "unknown"
    return found[1] if found else "unknown"
