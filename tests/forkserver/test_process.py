"""A process whose server has ended: nobody waits for it, and no other process is killed in its place."""

from __future__ import annotations

import os
import signal
from multiprocessing import forkserver

from tweed.forkserver.process import _Popen


def told(*numbers: int) -> _Popen:
    """A process of a server that has written these numbers, and ended."""
    popen: _Popen = object.__new__(_Popen)
    popen.returncode, (popen.sentinel, server) = None, os.pipe()
    for number in numbers:
        forkserver.write_signed(server, number)
    os.close(server)
    return popen


def test_the_number_of_a_process_comes_before_its_end() -> None:
    popen = told(4242, -signal.SIGTERM)
    assert popen.poll() == -signal.SIGTERM and popen.pid == 4242
    os.close(popen.sentinel)


def test_a_process_that_was_never_forked_has_ended_and_nobody_is_killed_for_it() -> None:
    for ask in (_Popen.poll, _Popen.kill, _Popen.wait):
        popen = told()
        ask(popen)
        assert popen.returncode == 255
        os.close(popen.sentinel)


def test_a_process_that_is_not_forked_yet_runs() -> None:
    popen: _Popen = object.__new__(_Popen)
    popen.returncode, (popen.sentinel, server) = None, os.pipe()
    assert popen.poll() is None
    for end in (popen.sentinel, server):
        os.close(end)
