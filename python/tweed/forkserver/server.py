"""The fork server: a process that has torch imported and one thread, from which others are forked."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker

#: One thread per process: they share the cores, and a process with threads cannot be forked safely. Arrow,
#: which comes with pandas and so with scikit-learn where pandas is installed, starts one in its allocator.
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
#: Heaps in huge pages, where kernel and glibc can: a fork has less to copy, and takes half as long.
_HUGE_PAGES = "glibc.malloc.hugetlb=1"
_preloads = ["tweed.forkserver.warm"]


def preload(*modules: str) -> None:
    """Names more modules that the fork server imports before its first fork, such as a test's own libraries.

    Takes effect when the server starts, at the first rank. A module that starts threads is refused then.

    Args:
      modules: dotted names; one that cannot be imported is left out.

    Cost: their imports, once in the server and not in each rank.
    """
    _preloads.extend(name for name in modules if name not in _preloads)


def start() -> None:
    """Starts the server, unless it runs, with this process's import path. It warms up in the background."""
    forkserver.set_forkserver_preload(_preloads)
    resource_tracker.ensure_running()  # its start lets Ctrl-C through again, so the server must not start it
    path = os.pathsep.join(filter(None, sys.path))
    tunables = ":".join(filter(None, (os.environ.get("GLIBC_TUNABLES"), _HUGE_PAGES)))
    with _no_interrupt(), environment(ONE_THREAD | {"PYTHONPATH": path, "GLIBC_TUNABLES": tunables}):
        forkserver.ensure_running()


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Lets the server start with Ctrl-C held back: it is for the launcher. A rank lets it through again."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def environment(changes: dict[str, str]) -> Iterator[None]:
    """Within, this process's environment has these variables; ranks that are started take them along."""
    before = {name: os.environ[name] for name in changes if name in os.environ}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name in changes:
            del os.environ[name]
        os.environ.update(before)
