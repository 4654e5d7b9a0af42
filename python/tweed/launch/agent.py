"""The agent of a host, started over ssh: `python -m tweed.launch.agent SILENCE_S`.

It ends with its standard input, or when nothing has come there for so many seconds, not even an empty line.
What it is told and what it answers are lines of JSON:

    {"look": {"folder", "script", "port"}}      {"look": {...}}, see `host_checks.HostInfo`
    {"clock": null}                             {"clock": seconds of its clock}
    {"run": {"folder", "words", "ranks"}}       {"line": [rank, 1 or 2, text]}, {"ended": [rank, exit code]}
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from tweed import distribution
from tweed.forkserver.child import die_with_parent
from tweed.launch.job import MESSAGE_BYTES
from tweed.launch.lines import Lines

#: Between the signals that ask ranks to end and those that end them.
_GRACE_S = 5.0
_CHUNK_BYTES = 2**16


class Rank:
    """A rank that was started, and what it prints: the error stream is 2, the other one 1."""

    def __init__(self, number: int, words: list[str], folder: str, environment: dict[str, str]) -> None:
        self.number = number
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # with all that it starts
            preexec_fn=die_with_parent,  # if the agent itself is killed; it has one thread
        )
        assert self.process.stdout
        assert self.process.stderr
        self.streams = {self.process.stdout.fileno(): 1, self.process.stderr.fileno(): 2}
        self._lines = {stream: Lines() for stream in self.streams}
        for stream in self.streams:
            os.set_blocking(stream, False)

    def read(self, stream: int) -> tuple[list[str], bool]:
        """Lines that have come by now, and whether more may follow."""
        try:
            data = os.read(stream, _CHUNK_BYTES)
        except BlockingIOError:
            return [], True
        return (self._lines[stream].take(data), True) if data else (self._lines[stream].rest(), False)

    def read_all(self, stream: int) -> list[str]:
        """Lines that are there, the last one too if it has no end. For a rank that has ended."""
        found: list[str] = []
        while lines := self.read(stream)[0]:
            found += lines
        return found + self._lines[stream].rest()

    def signal(self, number: signal.Signals) -> None:
        """Sends it to the rank and to all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Output:
    """Standard output, which never holds the agent up: what nobody takes yet is kept.

    Attributes:
      kept: it; ranks are not read meanwhile, so it is little.
      broken: nobody will take anything any more.
    """

    def __init__(self) -> None:
        self.kept, self.broken = bytearray(), False
        os.set_blocking(sys.stdout.fileno(), False)

    def write(self, data: bytes) -> None:
        """Writes it after what is kept."""
        if not self.broken:
            self.kept += data
            self.flush()

    def flush(self) -> None:
        """Writes what can be written now."""
        try:
            while self.kept:
                del self.kept[: os.write(sys.stdout.fileno(), self.kept)]
        except BlockingIOError:
            pass
        except OSError:
            self.drop()

    def drop(self) -> None:
        """Nobody is there any more who would take it."""
        self.broken = True
        self.kept.clear()


class Agent:
    """Follows the orders of its launcher until that is gone, then ends its ranks."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s, self._heard = silence_s, time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._streams = selectors.EpollSelector()  # of ranks: as one, so that all can be left unread
        self._output, self._holds = Output(), False
        self._orders = Lines(MESSAGE_BYTES)
        self._ranks: dict[int, Rank] = {}
        self._deadline: float | None = None  # when ranks are killed that were asked to end

    def run(self) -> None:
        """Returns when its launcher is gone, and all ranks too."""
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self._read_orders)
        self._selector.register(self._streams, selectors.EVENT_READ, self._read_streams)
        while self._deadline is None or self._ranks or self._output.kept:
            until = self._heard + self._silence_s if self._deadline is None else self._deadline
            for key, _ in self._selector.select(max(0.0, until - time.monotonic())):
                key.data()
            self._hold()
            now = time.monotonic()
            if now >= self._heard + self._silence_s:
                self._output.drop()
            if self._output.broken:
                self._end_ranks()
            if self._deadline is not None and now >= self._deadline:
                if not self._ranks:
                    return  # nobody takes their last lines
                for rank in self._ranks.values():
                    rank.signal(signal.SIGKILL)
                self._deadline = now + _GRACE_S

    def _hold(self) -> None:
        """Leaves ranks unread while there is more to write than is taken; they wait then too."""
        if self._holds == bool(self._output.kept):
            return
        self._holds = not self._holds
        if self._holds:
            self._selector.unregister(self._streams)
            self._selector.register(sys.stdout.fileno(), selectors.EVENT_WRITE, self._output.flush)
        else:
            self._selector.unregister(sys.stdout.fileno())
            self._selector.register(self._streams, selectors.EVENT_READ, self._read_streams)

    def _read_streams(self) -> None:
        for key, _ in self._streams.select(0):
            key.data()

    def _read_orders(self) -> None:
        data = os.read(sys.stdin.fileno(), _CHUNK_BYTES)
        self._heard = time.monotonic()
        for line in filter(None, self._orders.take(data)):
            ((kind, what),) = json.loads(line).items()
            self._obey(kind, what)
        if not data:
            self._end_ranks()

    def _obey(self, kind: str, what: Any) -> None:
        match kind:
            case "look":
                self._answer(kind, look(**what))
            case "clock":
                self._answer(kind, time.time())
            case "run":
                self._start(**what)

    def _start(self, folder: str, words: list[str], ranks: list[dict[str, Any]]) -> None:
        for one in ranks:
            rank = Rank(one["rank"], words, folder, one["environment"])
            self._ranks[rank.number] = rank
            for stream in rank.streams:
                self._streams.register(stream, selectors.EVENT_READ, partial(self._read_rank, rank, stream))
            pidfd = os.pidfd_open(rank.process.pid)
            self._selector.register(pidfd, selectors.EVENT_READ, partial(self._reap, rank, pidfd))

    def _read_rank(self, rank: Rank, stream: int) -> None:
        lines, more = rank.read(stream)
        self._tell(rank, stream, lines)
        if not more:
            self._streams.unregister(stream)

    def _reap(self, rank: Rank, pidfd: int) -> None:
        """Reports the last lines of a rank and its exit code, and kills what it has left behind."""
        self._selector.unregister(pidfd)
        os.close(pidfd)
        code = rank.process.wait()
        rank.signal(signal.SIGKILL)
        for stream in rank.streams:
            if stream in self._streams.get_map():
                self._tell(rank, stream, rank.read_all(stream))
                self._streams.unregister(stream)
        for pipe in (rank.process.stdout, rank.process.stderr):
            if pipe:
                pipe.close()
        del self._ranks[rank.number]
        self._answer("ended", [rank.number, code])

    def _tell(self, rank: Rank, stream: int, lines: list[str]) -> None:
        for line in lines:
            self._answer("line", [rank.number, rank.streams[stream], line])

    def _answer(self, kind: str, what: Any) -> None:
        self._output.write(json.dumps({kind: what}).encode() + b"\n")

    def _end_ranks(self) -> None:
        """The launcher is gone, or wants the end: ranks are asked to end, and killed if they do not."""
        if self._deadline is not None:
            return
        self._deadline = time.monotonic() + _GRACE_S
        self._selector.unregister(sys.stdin.fileno())
        for rank in self._ranks.values():
            rank.signal(signal.SIGTERM)


def look(folder: str, script: str | None, port: int | None) -> dict[str, Any]:
    """What `host_checks.HostInfo` holds, as seen from here.

    Args:
      port: of torch's store, if it is to be on this host.
    """
    from tweed.doctor.checks import versions

    words = os.environ.get("SSH_CONNECTION", "").split()  # address and port of the caller, then of this host
    caller, reached = (words[0], words[2]) if len(words) == 4 else (None, None)
    return {
        "tweed": distribution.version(),
        "torch": versions.torch(),
        "folder": Path(folder).is_dir(),
        "script": script is None or (Path(folder) / script).is_file(),
        "reached": reached,
        "caller": caller,
        "port_taken": None if port is None else _taken(port),
    }


def _taken(port: int) -> str | None:
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        return os.strerror(error.errno or 0)
    return None


def main() -> None:
    """Runs the agent, and leaves at once: nobody reads any more what Python might write at its end."""
    Agent(float(sys.argv[1])).run()
    os._exit(0)


if __name__ == "__main__":
    main()
