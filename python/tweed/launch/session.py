"""The launcher's side of agents: one process each, ssh's or the agent's own."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from tweed.errors import UsageError
from tweed.launch.job import BEAT_S, MESSAGE_BYTES, Host, command
from tweed.launch.lines import Lines

#: How long agents may take to end their ranks, which they kill after 5 s, and to say so.
_END_S = 12.0
_CHUNK_BYTES = 2**16


@dataclass(frozen=True, slots=True)
class Message:
    """What an agent has sent: `what` is as in `agent`."""

    host: int
    kind: str
    what: Any


@dataclass(frozen=True, slots=True)
class UnmarkedOutput:
    """A line of a host that no rank has printed: of ssh, of a login shell, or the agent's own error."""

    host: int
    text: str


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A session has ended, with this exit code. `printed`: the last lines that were none of a rank's."""

    host: int
    code: int
    printed: str


Event = Message | UnmarkedOutput | SessionEnded


class _Session:
    def __init__(self, host: Host, words: Sequence[str]) -> None:
        self.host = host
        try:
            # A session of its own: Ctrl-C in the terminal is for the launcher alone.
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(
                f"{host.name}: {words[0]} cannot be run here ({error.strerror}): install it "
                "(sudo apt install openssh-client), or give --ssh COMMAND"
            ) from None
        assert self.process.stdin
        assert self.process.stdout
        assert self.process.stderr
        self.streams = {self.process.stdout.fileno(), self.process.stderr.fileno()}
        self.answers = self.process.stdout.fileno()
        self.lines = {stream: Lines(MESSAGE_BYTES) for stream in self.streams}
        self.printed: list[str] = []


class Sessions:
    """Agents on all hosts. A context manager: leaving it ends them and their ranks.

    Attributes:
      cut: names of hosts whose agent was asked to end and did not in time.

    Raises: UsageError if ssh cannot be run here.
    """

    def __init__(self, hosts: Sequence[Host], python: str, ssh: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._sessions: list[_Session] = []
        self.cut: list[str] = []
        self._writing = threading.Lock()
        self._ended = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()
        try:
            for number, host in enumerate(hosts):
                session = _Session(host, command(host, python, ssh))
                self._sessions.append(session)
                for stream in session.streams:
                    self._selector.register(stream, selectors.EVENT_READ, partial(self._read, number, stream))
        except UsageError:
            self.kill()
            raise

    def send(self, number: int, kind: str, what: Any) -> None:
        """Tells the agent of a host what to do. One that is gone is told of by `poll`."""
        self._write(number, json.dumps({kind: what}).encode() + b"\n")

    def _write(self, number: int, data: bytes) -> None:
        pipe = self._sessions[number].process.stdin
        assert pipe
        with self._writing, contextlib.suppress(BrokenPipeError):
            while data and not pipe.closed:
                data = data[pipe.write(data) or 0 :]

    def _beat(self) -> None:
        """In a thread: the launcher may be held up by who reads its output, and is there all the same."""
        while not self._ended.wait(BEAT_S):
            for number in range(len(self._sessions)):
                self._write(number, b"\n")

    def poll(self, timeout: float | None) -> list[Event]:
        """Waits until something has happened, `timeout` seconds at most, and tells what."""
        found: list[Event] = []
        for key, _ in self._selector.select(timeout):
            found += key.data()
        return found

    def _read(self, number: int, stream: int) -> list[Event]:
        session = self._sessions[number]
        data = os.read(stream, _CHUNK_BYTES)
        lines = session.lines[stream].take(data) if data else session.lines[stream].rest()
        found = [_event(number, line, stream == session.answers) for line in lines]
        session.printed += [event.text for event in found if isinstance(event, UnmarkedOutput)]
        del session.printed[:-20]
        if data:
            return found
        self._selector.unregister(stream)
        session.streams.discard(stream)
        if session.streams:
            return found
        return [*found, SessionEnded(number, session.process.wait(), "\n".join(session.printed))]

    def end(self) -> list[Event]:
        """Has all agents end their ranks, and tells what still came. Those that take too long are cut off."""
        self._ended.set()
        for session in self._sessions:
            with self._writing:
                if session.process.stdin:
                    session.process.stdin.close()
        found: list[Event] = []
        until = time.monotonic() + _END_S
        while self._selector.get_map() and (left := until - time.monotonic()) > 0:
            found += self.poll(left)
        self.cut = [session.host.name for session in self._sessions if session.process.poll() is None]
        self.kill()
        return found

    def kill(self) -> None:
        """Ends the sessions at once. Agents that are still there notice it, and end their ranks."""
        self._ended.set()
        for session in self._sessions:
            session.process.kill()
            session.process.wait()
        self._selector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._selector.get_map() is not None:
                self.end()
        finally:
            self.kill()


def _event(number: int, line: str, answer: bool) -> Event:
    if answer:
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict) and len(message) == 1:
                return Message(number, *message.popitem())
    return UnmarkedOutput(number, line)
