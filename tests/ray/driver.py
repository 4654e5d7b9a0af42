"""A driver of the cluster of the tests: one process at rank 0 that runs functions for all of them."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tweed.testbed.ray_cluster import RayCluster

HOUSE = Path(__file__).parents[2]


class Driver:
    """The tests' side. A context manager; leaving it ends the process."""

    def __init__(self, cluster: RayCluster) -> None:
        self.cluster = cluster
        program = "from tests.ray.driver import serve; serve()"
        words = cluster.command(0, sys.executable, "-c", program, cluster.address, folder=HOUSE)
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, fn: Callable[..., Any], *args: Any) -> Any:
        """`fn(*args)` in the driver; `fn` is a function of a module, and what it raises fails the test."""
        assert self._process.stdin and self._process.stdout
        pickle.dump((fn, args), self._process.stdin)
        self._process.stdin.flush()
        well, result = pickle.load(self._process.stdout)
        if not well:
            raise AssertionError(result)
        return result

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def serve() -> None:
    """The process's side: runs what it is sent until the pipe closes."""
    import ray

    out, calls = os.fdopen(os.dup(1), "wb"), sys.stdin.buffer
    os.dup2(2, 1)  # what is printed is no answer
    ray.init(sys.argv[1], logging_level=logging.WARNING, log_to_driver=False)
    while calls.peek(1):
        fn, args = pickle.load(calls)
        try:
            answer = pickle.dumps((True, fn(*args)))
        except BaseException:  # noqa: BLE001 the test is to see it
            answer = pickle.dumps((False, traceback.format_exc()))
        out.write(answer)
        out.flush()
    ray.shutdown()
